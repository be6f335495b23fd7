"""Owns the seam through which file tools see what an editor has open, and which of it is not on disk.

What a person typed and did not save is what they mean, so tools read it before the disk. A snapshot is taken on the event
loop, to which the documents belong; a tool's thread works with the snapshot. Must not know editors, clients or protocols.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Final, Protocol

from msgspec import Struct

from refold_protocol.json_text import repair_surrogates
from refold_server.tools.failure import ToolFailure
from refold_server.tools.paths import Place, Workspace
from refold_server.tools.text_file import BYTE_ORDER_MARK, read_up_to


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


class NoBuffers:
    """The double for runs without an editor: nothing is open."""

    async def snapshot(self) -> tuple[OpenBuffer, ...]:
        """Give nothing."""
        return ()


NO_BUFFERS: Final = NoBuffers()
"""Nothing is open."""


class UnsavedTexts:
    """The open files of a workspace whose text is not that on disk. Make and use it in the tool's thread."""

    def __init__(self, workspace: Workspace, buffers: Iterable[OpenBuffer]) -> None:
        self._workspace = workspace
        self._texts: dict[Place, bytes] = {}
        for buffer in buffers:
            place = None if buffer.saved else _place(workspace, buffer.path)
            if place is not None:
                self._texts[place] = repair_surrogates(buffer.text).encode()

    def at(self, place: Place) -> bytes | None:
        """Give the text at a place in UTF-8, None where the disk has the same or nothing is open."""
        text = self._texts.get(place)
        if text is None or self._is_on_disk(place, text):
            return None
        return text

    def new_files(self) -> list[Place]:
        """Give the places of open files that are not on disk yet, in the order of a walk, which leaves out `.git`."""
        missing = [place for place in self._texts if ".git" not in place.parts and self._disk(place, 0) is None]
        return sorted(missing, key=lambda place: place.parts)

    def _is_on_disk(self, place: Place, text: bytes) -> bool:
        disk = self._disk(place, len(text) + len(BYTE_ORDER_MARK) + 1)
        return disk is not None and is_same_text(text, disk)

    def _disk(self, place: Place, size: int) -> bytes | None:
        try:
            descriptor = self._workspace.open_file(place)
        except ToolFailure:  # not there yet, or not to be read: the editor has it
            return None
        try:
            return read_up_to(descriptor, size)
        finally:
            os.close(descriptor)


def is_same_text(text: bytes, disk: bytes) -> bool:
    """Tell whether an editor's text is what a file holds: editors keep no byte order mark, and some end every text with a
    line break, whether the file has it or not."""
    held = disk.removeprefix(BYTE_ORDER_MARK)
    return text == held or (bool(held) and text in (held + b"\n", held + b"\r\n"))


def _place(workspace: Workspace, path: str) -> Place | None:
    try:
        return workspace.locate(path)
    except ToolFailure:  # outside of the workspace: no tool may read it anyway
        return None
