"""What an editor has open, as file tools see it: which text is not on disk, and how it is edited there.

What a person typed and did not save is what they mean, so tools read it before the disk and edit it where it is. A snapshot
is taken on the event loop, to which the documents belong; a tool's thread works with the snapshot. Must not know editors,
clients or protocols.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Final, Protocol

from msgspec import Struct

from refold_protocol.json_text import repair_surrogates
from refold_server.tools.text_file import BYTE_ORDER_MARK, read_up_to
from refold_server.tools.tool_failure import ToolFailure
from refold_server.tools.workspace_path import Workspace, WorkspacePath, shown


class OpenBuffer(Struct, frozen=True):
    """A file that is open in an editor: its absolute path as the editor names it, which may lead through links, its text
    there, and the version of that text. `saved`: the text is known to have been on disk, so the disk has what is new.
    `language` is what the editor calls its language, empty where it did not say."""

    path: str
    text: str
    version: int
    saved: bool = False
    language: str = ""


class OpenBuffers(Protocol):
    """What an editor has open."""

    async def snapshot(self) -> tuple[OpenBuffer, ...]:
        """Give all of it as of now, in no order. Waits for what the client said before. Call it on the event loop."""
        ...

    async def edit(self, buffer: OpenBuffer, text: str, label: str) -> None:
        """Have the editor make `text` of an open text, which then is unsaved there; `label` names that in its list of what
        can be undone. Raises ToolFailure: STALE for a buffer that is not as it was, TOOL_FAILED where the editor did not."""
        ...

    async def saved(self, buffer: OpenBuffer) -> None:
        """Be told that the file of a buffer without changes was written to: what the disk has is newer."""
        ...


class NoBuffers:
    """The double for runs without an editor: nothing is open."""

    async def snapshot(self) -> tuple[OpenBuffer, ...]:
        """Give nothing."""
        return ()

    async def edit(self, buffer: OpenBuffer, text: str, label: str) -> None:
        """Refuse: nothing is open."""
        del text, label
        raise closed_meanwhile(buffer)

    async def saved(self, buffer: OpenBuffer) -> None:
        """Do nothing."""


NO_BUFFERS: Final = NoBuffers()
"""Nothing is open."""


def closed_meanwhile(buffer: OpenBuffer) -> ToolFailure:
    """Give the failure of an edit for a text that is not open as it was."""
    name = shown(os.path.basename(buffer.path))  # noqa: PTH119 - a path of the editor's, as text
    return ToolFailure("STALE", "BufferChanged", f"{name} was changed or closed in the editor meanwhile; read it again")


class UnsavedTexts:
    """The open files of a workspace whose text is not that on disk. Make and use it in the tool's thread."""

    def __init__(self, workspace: Workspace, buffers: Iterable[OpenBuffer]) -> None:
        self._workspace = workspace
        self._texts: dict[WorkspacePath, bytes] = {}
        self._open: dict[WorkspacePath, OpenBuffer] = {}
        for buffer in buffers:
            place = _place(workspace, buffer.path)
            if place is None:
                continue
            if not buffer.saved or place not in self._open:
                self._open[place] = buffer
            if not buffer.saved:
                self._texts[place] = repair_surrogates(buffer.text).encode()

    def open_at(self, place: WorkspacePath) -> OpenBuffer | None:
        """Give what is open at a place, saved or not; of several views of one file, one that is not saved."""
        return self._open.get(place)

    def at(self, place: WorkspacePath) -> bytes | None:
        """Give the text at a place in UTF-8, None where the disk has the same or nothing is open."""
        text = self._texts.get(place)
        if text is None or self._is_on_disk(place, text):
            return None
        return text

    def new_files(self) -> list[WorkspacePath]:
        """Give the places of open files that are not on disk yet, in the order of a walk, which leaves out `.git`."""
        missing = [place for place in self._texts if ".git" not in place.parts and self._disk(place, 0) is None]
        return sorted(missing, key=lambda place: place.parts)

    def _is_on_disk(self, place: WorkspacePath, text: bytes) -> bool:
        disk = self._disk(place, len(text) + len(BYTE_ORDER_MARK) + 1)
        return disk is not None and is_same_text(text, disk)

    def _disk(self, place: WorkspacePath, size: int) -> bytes | None:
        try:
            descriptor = self._workspace.open_file(place)
        except ToolFailure:  # not there yet, or not to be read: the editor has it
            return None
        try:
            return read_up_to(descriptor, size)
        finally:
            os.close(descriptor)


def is_same_text(text: bytes, disk: bytes) -> bool:
    """Tell whether an editor's text is what a file holds: editors keep no byte order mark, many keep line ends apart from the
    text, and some end every text with a line break, whether the file has it or not."""
    held, plain = disk.removeprefix(BYTE_ORDER_MARK).replace(b"\r\n", b"\n"), text.replace(b"\r\n", b"\n")
    return plain == held or (bool(held) and plain == held + b"\n")


def _place(workspace: Workspace, path: str) -> WorkspacePath | None:
    try:
        return workspace.locate(path)
    except ToolFailure:  # outside of the workspace: no tool may read it anyway
        return None
