"""Owns what is said of a client's open documents inside the daemon, and the way between URIs and paths.

A document's text is the client's; here it is a snapshot that nothing changes. Must not know pygls.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import PurePath
from urllib.parse import unquote, unquote_to_bytes, urlsplit

from msgspec import Struct


class OpenDocument(Struct, frozen=True):
    """An open document as of one moment. `path` is None for one that is no file, like a new buffer. `saved`: the client
    saved this version, or its text was written to disk from here. `language` is the client's id of its language."""

    uri: str
    path: str | None
    version: int
    text: str
    saved: bool = False
    language: str = ""


def path_of_uri(uri: str) -> str | None:
    """Give the absolute path that a `file:` URI names, with links in it as they are; None for any other URI."""
    try:
        parts = urlsplit(uri)
    except ValueError:  # brackets that are no host
        return None
    path = os.fsdecode(unquote_to_bytes(parts.path))
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or not path.startswith("/") or "\0" in path:
        return None
    return path


def document_named(documents: Sequence[OpenDocument], uri: str) -> OpenDocument | None:
    """Give the document with that URI, however either is escaped."""
    wanted = unquote(uri)
    return next((document for document in documents if unquote(document.uri) == wanted), None)


def document_at(documents: Sequence[OpenDocument], path: str) -> OpenDocument | None:
    """Give the document whose file is `path`, by whatever links either leads there. Reads the file system."""
    real = os.path.realpath(path)
    for document in documents:
        if document.path is not None and os.path.realpath(document.path) == real:
            return document
    return None


def folder_of(path: str, folders: Sequence[str]) -> str | None:
    """Give the innermost of the folders in which a file lies, compared by the parts of paths; None where none has it."""
    parts = PurePath(path).parts
    holding = [folder for folder in folders if parts[: len(PurePath(folder).parts)] == PurePath(folder).parts]
    return max(holding, key=lambda folder: len(PurePath(folder).parts), default=None)
