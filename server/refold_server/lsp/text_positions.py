"""Open documents, their files, and the arithmetic of positions: between LSP's lines and columns and places in a text.

Places are counted in code points, in all three encodings. Lines end at `\\n`, `\\r\\n` or `\\r` and at nothing else, whatever
Python takes for a line end. Every position is a place: one inside a character is its start, one after a line's end is that end,
before its line break, and one after the last line is the end of the text.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from itertools import islice
from pathlib import PurePath
from typing import Final
from urllib.parse import unquote, unquote_to_bytes, urlsplit

from msgspec import Struct

from refold_protocol.rpc.lsp_types import Position, Range, TextEdit


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


class Splice(Struct, frozen=True):
    """A replacement in a text: what lies from `start` to before `end` becomes `text`."""

    start: int
    end: int
    text: str


def place_of(text: str, position: Position, encoding: str) -> int:
    """Give the place that a position names."""
    start = _line_start(text, position.line)
    if start is None:
        return len(text)
    end = _line_end(text, start)
    line = text[start:end]
    if encoding == "utf-32" or line.isascii():
        return min(start + position.character, end)
    units = 0
    for index, character in enumerate(line):
        units += _width(character, encoding)
        if units > position.character:
            return start + index
    return end


def position_of(text: str, place: int, encoding: str) -> Position:
    """Give the position of a place. One between `\\r` and `\\n` is given as that before both."""
    place -= _is_inside_break(text, place)
    start = max(text.rfind("\n", 0, place), text.rfind("\r", 0, place)) + 1
    return Position(_breaks(text, 0, start), sum(_width(character, encoding) for character in text[start:place]))


def span_of(text: str, given: Range, encoding: str) -> tuple[int, int]:
    """Give the places of a range, in order."""
    start, end = (place_of(text, position, encoding) for position in (given.start, given.end))
    return (start, end) if start <= end else (end, start)


def spliced(text: str, splices: Sequence[Splice]) -> str:
    """Give `text` with replacements, which must be in order and apart. Raises ValueError where they are not."""
    pieces: list[str] = []
    done = 0
    for splice in splices:
        if not done <= splice.start <= splice.end <= len(text):
            raise ValueError(f"the replacement {splice.start} to {splice.end} overlaps another or lies outside the text")
        pieces += (text[done : splice.start], splice.text)
        done = splice.end
    return "".join((*pieces, text[done:]))


def text_edits(text: str, splices: Sequence[Splice], encoding: str) -> tuple[TextEdit, ...]:
    """Give replacements in the form of LSP."""
    return tuple(
        TextEdit(Range(position_of(text, one.start, encoding), position_of(text, one.end, encoding)), one.text)
        for one in splices
    )


def difference(before: str, after: str) -> tuple[Splice, ...]:
    """Give one replacement that makes `after` of `before` and leaves their common start and end alone; none for equal texts.

    A line break `\\r\\n` is never cut in two: no position lies inside.
    """
    if before == after:
        return ()
    shorter = min(len(before), len(after))
    head = next((at for at in range(shorter) if before[at] != after[at]), shorter)
    head -= _is_inside_break(before, head)
    room = shorter - head
    tail = next((at for at in range(room) if before[-1 - at] != after[-1 - at]), room)
    tail -= _is_inside_break(before, len(before) - tail)
    return (Splice(head, len(before) - tail, after[head : len(after) - tail]),)


def _line_start(text: str, line: int) -> int | None:
    """Give the place at which a line starts, None after the last line. Counts by blocks: documents can be long."""
    if line == 0:
        return 0
    start = 0
    while start < len(text):
        end = start + _BLOCK
        end += _is_inside_break(text, end)
        breaks = _breaks(text, start, end)
        if breaks >= line:
            return next(islice(_BREAK.finditer(text, start, end), line - 1, None)).end()
        line -= breaks
        start = end
    return None


def _is_inside_break(text: str, place: int) -> bool:
    return text[place - 1 : place + 1] == "\r\n"


def _breaks(text: str, start: int, end: int) -> int:
    """Count the line breaks between two places, neither of which lies inside one."""
    count = text.count("\n", start, end)
    if text.find("\r", start, end) < 0:
        return count
    return count + text.count("\r", start, end) - text.count("\r\n", start, end)


def _line_end(text: str, start: int) -> int:
    found = _BREAK.search(text, start)
    return len(text) if found is None else found.start()


def _width(character: str, encoding: str) -> int:
    """Give the units of one character; half a surrogate pair counts as the character that stands for it."""
    code = ord(character)
    if encoding == "utf-16":
        return 2 if code > 0xFFFF else 1
    if encoding == "utf-32" or code < 0x80:
        return 1
    return 2 if code < 0x800 else 3 if code < 0x10000 else 4


_BLOCK: Final = 4096
_BREAK: Final = re.compile("\r\n|\n|\r")
