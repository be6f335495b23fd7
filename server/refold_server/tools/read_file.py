"""The tool `read_file`: a text file or a range of its lines, each with its number.

The file goes through in pieces: of one that is too long for an answer, head and tail are kept, whatever its size, and of a
very long one only the head is read. The format of a line is its number, a tab, its text. Of a file with unsaved text in an
editor, that text is read, and the answer says so.
"""

from __future__ import annotations

import codecs
import os
from collections.abc import Callable, Iterator
from io import BytesIO
from typing import Annotated, Final

import anyio.from_thread
import anyio.to_thread
from msgspec import Meta, Struct

from refold_protocol.json_text import compact_json
from refold_protocol.session.messages import ToolSchema
from refold_server.tools.open_buffers import OpenBuffer, UnsavedTexts
from refold_server.tools.text_file import BYTE_ORDER_MARK, MAX_TEXT, PIECE, is_binary, read_up_to
from refold_server.tools.tool import ToolContext, ToolOutput, text_output
from refold_server.tools.tool_failure import invalid_arguments
from refold_server.tools.tool_output import HeadTail
from refold_server.tools.workspace_path import WorkspacePath

MAX_BYTES: Final = 64 << 20
"""Bytes that are read from the first line asked for; what precedes it is passed over, which is fast."""

_NOTE_ROOM: Final = 300
_UNSAVED: Final = "[this is the unsaved text of the editor in which the file is open; the disk has another]"


class ReadFileParams(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Arguments of `read_file`. Lines count from 1; both ends are included."""

    path: Annotated[str, Meta(min_length=1)]
    start_line: Annotated[int, Meta(ge=1)] | None = None
    end_line: Annotated[int, Meta(ge=1)] | None = None


class ReadFile:
    """The tool."""

    schema = ToolSchema(
        name="read_file",
        description=(
            "Read a text file of the workspace. Each line is given as its number, a tab and its text. A file that is too "
            "long is cut in the middle, and the answer says so: then ask for a part with startLine and endLine."
        ),
        parameters=compact_json(
            {
                "type": "object",
                "properties": {
                    "path": {
                        "type": "string",
                        "minLength": 1,
                        "description": "The file to read, relative to the workspace.",
                    },
                    "startLine": {
                        "type": "integer",
                        "minimum": 1,
                        "description": "The first line to give; lines count from 1. Default: 1.",
                    },
                    "endLine": {
                        "type": "integer",
                        "minimum": 1,
                        "description": "The last line to give. Default: the last line of the file.",
                    },
                },
                "required": ["path"],
                "additionalProperties": False,
            }
        ),
    )
    read_only = True
    params = ReadFileParams

    async def run(self, context: ToolContext, params: ReadFileParams) -> ToolOutput:
        """Read. Raises ToolFailure."""
        buffers = await context.buffers.snapshot()
        return text_output(await anyio.to_thread.run_sync(_read, context, params, buffers, abandon_on_cancel=True))


def _read(context: ToolContext, params: ReadFileParams, buffers: tuple[OpenBuffer, ...]) -> str:
    first, last = params.start_line or 1, params.end_line
    if last is not None and last < first:
        raise invalid_arguments(f"endLine {last} comes before startLine {first}")
    place = context.workspace.locate(params.path)
    unsaved = UnsavedTexts(context.workspace, buffers).at(place)
    if unsaved is not None:
        context.seen.note(place, unsaved)
        read = BytesIO(unsaved).read
        return f"{_numbered(read, read(PIECE), place, first, last, context.output_limit)}\n{_UNSAVED}"
    descriptor = context.workspace.open_file(place)
    try:
        start = os.read(descriptor, PIECE)
        if is_binary(start):
            return f"[{place.shown} is a binary file of {os.fstat(descriptor).st_size:,} bytes; its content is not shown]"
        rest = _all_of(context, place, start, descriptor)
        return _numbered(rest, start, place, first, last, context.output_limit)
    finally:
        os.close(descriptor)


def _all_of(context: ToolContext, place: WorkspacePath, start: bytes, descriptor: int) -> Callable[[int], bytes]:
    """Give what reads on after `start`. A file that can be changed is read whole at once, and noted as it is then."""
    rest = read_up_to(descriptor, MAX_TEXT + 1 - len(start))
    if len(start) + len(rest) <= MAX_TEXT:
        context.seen.note(place, start + rest)
        return BytesIO(rest).read
    head = BytesIO(rest)
    return lambda size: head.read(size) or os.read(descriptor, size)


def _numbered(
    read: Callable[[int], bytes], start: bytes, place: WorkspacePath, first: int, last: int | None, limit: int
) -> str:
    lines = _Numbering(first, last, HeadTail(max(limit - _NOTE_ROOM, 0)))
    for piece in _pieces(read, start.removeprefix(BYTE_ORDER_MARK)):
        anyio.from_thread.check_cancelled()
        lines.add(piece)
        if lines.done:
            break
    lines.finish()
    if lines.last == 0:
        if first > 1:
            raise invalid_arguments(f"{place.shown} is empty; startLine {first} is past its end")
        return f"[{place.shown} is empty]"
    if lines.last < first:
        raise invalid_arguments(f"{place.shown} has {lines.last:,} lines; startLine {first} is past its end")
    return lines.text()


def _pieces(read: Callable[[int], bytes], start: bytes) -> Iterator[bytes]:
    """Give the file in pieces, none of which ends between the `\\r` and the `\\n` of a line's end."""
    piece = start
    while piece:
        held = b"\r" if piece.endswith(b"\r") else b""
        if len(piece) > len(held):
            yield piece[: len(piece) - len(held)]
        more = read(PIECE)
        if held and not more:
            yield held
        piece = held + more if more else b""


class _Numbering:
    """Takes a file in pieces and keeps the lines `first` to `last` with their numbers."""

    def __init__(self, first: int, last: int | None, kept: HeadTail) -> None:
        self._first = first
        self._wanted = last
        self._kept = kept
        self._taken = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._open = False
        self.last = 0
        """Number of the last line of which something came."""
        self.done = False
        """Whether nothing that follows is wanted."""

    def add(self, piece: bytes) -> None:
        """Take the next bytes of the file."""
        if self._passes(piece):
            return
        self._taken += len(piece)
        parts = piece.split(b"\n")
        for place, part in enumerate(parts):
            ends = place < len(parts) - 1
            if part or ends:
                self._add_part(part, ends)
            if self.done:
                return
        self.done = self._taken >= MAX_BYTES

    def finish(self) -> None:
        """Say that the file is over."""
        if self._open and self._shows():
            self._kept.add(self._decoder.decode(b"", final=True))

    def text(self) -> str:
        """Give the numbered lines, with a note when not all of them are there."""
        over = self._taken >= MAX_BYTES
        if not over and not self._kept.cut:
            return self._kept.text()
        reason = f"reading stopped after {MAX_BYTES >> 20} MiB" if over else "too long to show whole"
        return f"{self._kept.text()}\n[lines {self._first} to {self.last}: {reason}; ask for a part with startLine and endLine]"

    def _passes(self, piece: bytes) -> bool:
        """Count the lines of a piece that lies before the first wanted line; False when it reaches that line."""
        breaks = piece.count(b"\n")
        number = self.last if self._open else self.last + 1
        if number + breaks >= self._first:
            return False
        self._open = not piece.endswith(b"\n")
        self.last = number + breaks - (0 if self._open else 1)
        return True

    def _add_part(self, part: bytes, ends: bool) -> None:
        if not self._open:
            self.last += 1
            if self._shows():
                self._kept.add(f"{self.last}\t" if self._kept.length == 0 else f"\n{self.last}\t")
        if self._shows():
            self._kept.add(self._decoder.decode(part.removesuffix(b"\r") if ends else part, final=ends))
        self._open = not ends
        self.done = ends and self.last == self._wanted

    def _shows(self) -> bool:
        return self.last >= self._first
