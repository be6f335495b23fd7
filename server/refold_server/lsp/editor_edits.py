"""The edit of a text, wherever it is: on disk, or in the editor where it has unsaved changes.

A file that is not open, or open without changes, is edited on disk, in the way in which tools replace files, and editors reload
it. One with unsaved changes is edited through `workspace/applyEdit` with its version: disk and editor would drift apart
otherwise, and the person could not undo it. Never creates a file, and never writes over what it did not see. Confinement to a
workspace is the caller's affair.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path, PurePath
from typing import Final, Protocol, TypeAlias

import anyio
import anyio.to_thread
import msgspec
from msgspec import Raw, Struct

from refold_protocol.json_text import repair_surrogates
from refold_protocol.rpc.lsp_types import (
    ApplyEditParams,
    ApplyEditResult,
    DocumentEdit,
    TextEdit,
    VersionedDocument,
    WorkspaceEdit,
)
from refold_server.lsp.text_positions import OpenDocument, Splice, difference, document_at, document_named, spliced, text_edits
from refold_server.rpc.client_requests import PeerError, PeerGoneError
from refold_server.tools.atomic_write import FileChangedError, may_write, write_over
from refold_server.tools.open_buffers import is_same_text
from refold_server.tools.text_file import BYTE_ORDER_MARK

EDIT_SECONDS: Final = 30.0
"""Seconds in which an editor says whether it made an edit. Nobody is asked about it, so an editor that lives has answered."""

_FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class EditOutcome(Struct, frozen=True, gc=False, omit_defaults=True):
    """A document that was edited. `unsaved`: in the editor only, because it had unsaved changes there; else on disk.
    `version` is that of the open document on which the edit was made."""

    path: str
    unsaved: bool
    version: int | None = None


class DiskText(Struct, frozen=True):
    """A file's bytes and, where they are UTF-8, its text without the byte order mark."""

    data: bytes
    text: str | None


def read_text(path: str) -> DiskText | None:
    """Read a file; None where there is none. Raises OSError."""
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        return None
    try:
        return DiskText(data, data.removeprefix(BYTE_ORDER_MARK).decode())
    except UnicodeDecodeError:
        return DiskText(data, None)


def replace_text(path: str, before: DiskText, text: str) -> None:
    """Write `text` in the place of `before`, which the file must still hold; permissions and byte order mark stay.

    Raises FileChangedError, OSError (so for a file whose mode takes no text from this user), and UnicodeEncodeError for half a
    surrogate pair.
    """
    real = Path(os.path.realpath(path))
    data = (BYTE_ORDER_MARK if before.data.startswith(BYTE_ORDER_MARK) else b"") + text.encode()
    folder = os.open(real.parent, _FOLDER_FLAGS)
    try:
        if not may_write(folder, real.name):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        write_over(folder, real.name, before.data, data, partial(os.open, real.name, _FILE_FLAGS, dir_fd=folder))
    finally:
        os.close(folder)


Change: TypeAlias = Callable[[str], Sequence[Splice]]
"""Gives the replacements for a text as it is now, in order and apart, none for a text that stays. Raises EditRefused where
the text is not one to which they belong."""


class EditRefused(Exception):  # noqa: N818 - an outcome that people are told; nothing failed
    """No edit was made; the message says why, as the rest of a sentence that begins with "Nothing was changed: "."""


class Editor(Protocol):
    """The editor's side of edits. `encoding` is what its positions count in; `applies_edits` and `checks_versions` are
    what it announced."""

    @property
    def encoding(self) -> str:
        """What positions are counted in."""
        ...

    @property
    def applies_edits(self) -> bool:
        """Whether it can be asked to edit."""
        ...

    @property
    def checks_versions(self) -> bool:
        """Whether an edit can name the version that it is for."""
        ...

    async def documents(self) -> tuple[OpenDocument, ...]:
        """Give the open documents as of now."""
        ...

    async def saved(self, document: OpenDocument) -> None:
        """Be told that the text of this version was written to disk."""
        ...

    async def request(self, method: str, params: object = None) -> Raw:
        """Ask the client. Raises PeerError and PeerGoneError."""
        ...


def rewritten(before: str, after: str) -> Change:
    """Give the change from one whole text to another; refused for a text that is not `before` any more."""

    def change(text: str) -> Sequence[Splice]:
        if text != before:
            raise EditRefused("the text was changed meanwhile")
        return difference(before, after)

    return change


async def apply_text_edit(editor: Editor, path: str, change: Change, *, label: str = "refold") -> EditOutcome:
    """Make a change where the text of the file is. `label` names it in the editor's undo list. Raises EditRefused."""
    try:
        disk = await anyio.to_thread.run_sync(read_text, path)
    except OSError as error:
        raise EditRefused(f"{path} cannot be read: {error.strerror}") from None
    found = await anyio.to_thread.run_sync(document_at, await editor.documents(), path)
    document = None if found is None else document_named(await editor.documents(), found.uri)  # as it is after that wait
    if document is None or document.saved or _is_on_disk(document, disk):
        return await _on_disk(editor, path, disk, document, change)
    return await _in_editor(editor, path, document, change, label)


async def edit_open_text(editor: Editor, document: OpenDocument, text: str, *, label: str) -> None:
    """Have the editor make `text` of a document that has unsaved changes and is as given. Raises EditRefused."""
    change = rewritten(repair_surrogates(document.text), text)
    shown = PurePath(document.path or document.uri).name
    await _in_editor(editor, shown, msgspec.structs.replace(document, text=repair_surrogates(document.text)), change, label)


def _is_on_disk(document: OpenDocument, disk: DiskText | None) -> bool:
    return disk is not None and is_same_text(repair_surrogates(document.text).encode(), disk.data)


async def _on_disk(
    editor: Editor, path: str, disk: DiskText | None, document: OpenDocument | None, change: Change
) -> EditOutcome:
    if disk is None:
        raise EditRefused(f"{path} does not exist")
    if disk.text is None:
        raise EditRefused(f"{path} is not UTF-8 text")
    apart = document is not None and _keeps_line_ends_apart(document.text, disk.text)
    held = disk.text.replace("\r\n", "\n") if apart else disk.text
    splices = change(held)
    if splices:
        text = repair_surrogates(spliced(held, splices))
        text = text.replace("\n", "\r\n") if apart else text
        try:
            await anyio.to_thread.run_sync(partial(replace_text, path, disk, text))
        except FileChangedError:
            raise EditRefused(f"{path} was changed on disk meanwhile") from None
        except OSError as error:
            raise EditRefused(f"{path} cannot be written: {error.strerror}") from None
        if document is not None:
            await editor.saved(document)
    return EditOutcome(path, False, None if document is None else document.version)


def _keeps_line_ends_apart(shown: str, held: str) -> bool:
    """Tell whether an editor shows a file of CR LF lines without the CRs."""
    return "\r" not in shown and "\n" in held and held.count("\n") == held.count("\r\n")


async def _in_editor(editor: Editor, path: str, document: OpenDocument, change: Change, label: str) -> EditOutcome:
    if not editor.applies_edits:
        raise EditRefused(f"{path} has unsaved changes in an editor that cannot be asked to edit; save it first")
    edits = text_edits(document.text, change(document.text), editor.encoding)
    if edits:
        edit = _workspace_edit(document, edits, checks_versions=editor.checks_versions)
        try:
            with anyio.fail_after(EDIT_SECONDS):
                reply = await editor.request("workspace/applyEdit", ApplyEditParams(label, edit))
            result = msgspec.json.decode(reply, type=ApplyEditResult)
        except TimeoutError:
            reason = (
                f"the editor did not say within {EDIT_SECONDS:g} s whether it edited {path}; look there before you try again"
            )
            raise EditRefused(reason) from None
        except (PeerError, PeerGoneError, msgspec.DecodeError) as error:  # the editor did not do it, or did not say so
            raise EditRefused(f"the editor was asked to edit {path} and failed: {error}") from None
        if not result.applied:
            raise EditRefused(f"the editor refused to edit {path}: {result.failure_reason or 'it gave no reason'}")
    return EditOutcome(path, True, document.version)


def _workspace_edit(document: OpenDocument, edits: tuple[TextEdit, ...], *, checks_versions: bool) -> WorkspaceEdit:
    if checks_versions:
        return WorkspaceEdit((DocumentEdit(VersionedDocument(document.uri, document.version), edits),))
    return WorkspaceEdit(changes=Raw(msgspec.json.encode({document.uri: edits})))
