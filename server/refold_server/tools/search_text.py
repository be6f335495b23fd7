"""The tool `search_text`: the lines of the workspace that hold a text or match a regular expression.

Order: files as `walk.py` gives them, lines as they stand in the file; the format is `path:line: text`. Binary files, and
what git ignores, are left out; symbolic links are not followed. Bounded in files, bytes, matches and length of a line.
Of files with unsaved text in an editor, that text is searched; those that are not on disk at all come last.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Annotated, Final

import anyio.from_thread
import anyio.to_thread
from msgspec import Meta, Struct

from refold_protocol.json_text import compact_json
from refold_protocol.session.messages import ToolSchema
from refold_server.tools.line_search import LiteralMatcher, Matcher, RegexMatcher
from refold_server.tools.open_buffers import OpenBuffer, UnsavedTexts
from refold_server.tools.text_file import is_binary, read_up_to
from refold_server.tools.tool import ToolContext, ToolOutput, text_output
from refold_server.tools.tool_failure import ToolFailure, invalid_arguments
from refold_server.tools.tool_output import text_of
from refold_server.tools.tree_walk import Walk
from refold_server.tools.workspace_path import Workspace, WorkspacePath, shown

MAX_MATCHES: Final = 200
"""Lines that one answer holds."""

MAX_LINE: Final = 300
"""Characters of a matching line that are shown."""

MAX_FILE_BYTES: Final = 8 << 20
"""Size of the largest file that is searched."""

MAX_TOTAL_BYTES: Final = 512 << 20
"""Bytes that one search reads."""

_NOTE_ROOM: Final = 500
_TOLD_NAMES: Final = 5


class SearchTextParams(Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of `search_text`."""

    pattern: Annotated[str, Meta(min_length=1, max_length=1_000)]
    path: str | None = None
    regex: bool | None = None


class SearchText:
    """The tool."""

    schema = ToolSchema(
        name="search_text",
        description=(
            "Search the text files of the workspace, line by line, and give each matching line as `path:line: text`. "
            "Files that git ignores and binary files are left out. Upper and lower case differ."
        ),
        parameters=compact_json(
            {
                "type": "object",
                "properties": {
                    "pattern": {
                        "type": "string",
                        "minLength": 1,
                        "maxLength": 1000,
                        "description": "The text to find, exactly as it stands within one line.",
                    },
                    "path": {
                        "type": "string",
                        "description": "The file or folder to search, relative to the workspace. Default: all of it.",
                    },
                    "regex": {
                        "type": "boolean",
                        "description": "Take the pattern as a Python regular expression. Default: false.",
                    },
                },
                "required": ["pattern"],
                "additionalProperties": False,
            }
        ),
    )
    read_only = True
    params = SearchTextParams

    async def run(self, context: ToolContext, params: SearchTextParams) -> ToolOutput:
        """Search. Raises ToolFailure."""
        buffers = await context.buffers.snapshot()
        return text_output(await anyio.to_thread.run_sync(_search, context, params, buffers, abandon_on_cancel=True))


def _search(context: ToolContext, params: SearchTextParams, buffers: tuple[OpenBuffer, ...]) -> str:
    check = anyio.from_thread.check_cancelled
    if not params.regex and not {"\r", "\n"}.isdisjoint(params.pattern):
        raise invalid_arguments("pattern holds a line break, and lines are searched one at a time")
    unsaved = UnsavedTexts(context.workspace, buffers)
    search = _Search(context.workspace, unsaved, params, context.output_limit - _NOTE_ROOM)
    with RegexMatcher(params.pattern, check) if params.regex else LiteralMatcher(params.pattern) as matcher:
        for place in search.files():
            check()
            search.look_into(place, matcher)
            if search.full:
                break
    return search.text()


class _Search:
    """Gathers the matching lines of one search, and what was left out of it."""

    def __init__(self, workspace: Workspace, unsaved: UnsavedTexts, params: SearchTextParams, limit: int) -> None:
        self._workspace = workspace
        self._unsaved = unsaved
        self._start = workspace.locate(params.path or ".")
        self._pattern = params.pattern
        self._walk = Walk(workspace, self._start, anyio.from_thread.check_cancelled)
        self._room = limit
        self._lines: list[str] = []
        self._told_unsaved: list[str] = []
        self._bytes = 0
        self._searched = 0
        self._large = 0
        self._unreadable = 0
        self.full = False
        """Whether a bound was reached, so that the rest is not searched."""

    def files(self) -> Iterator[WorkspacePath]:
        """Give the files to search, in order: the named one, or those below the named folder."""
        new = self._unsaved.new_files()
        if self._start in new or not self._workspace.is_folder(self._start):
            yield self._start
            return
        for entry in self._walk.entries():
            if entry.target is None:
                yield entry.place
        depth = len(self._start.parts)
        yield from (place for place in new if place.parts[:depth] == self._start.parts)

    def look_into(self, place: WorkspacePath, matcher: Matcher) -> None:
        """Search one file. Raises ToolFailure when the matcher gives up, or the one named file cannot be read."""
        unsaved = self._unsaved.at(place)
        data = self._content(place) if unsaved is None else unsaved.removesuffix(b"\n") if unsaved else None
        if data is None:
            return
        self._searched += 1
        self._bytes += len(data)
        rows = matcher.rows(place, data, MAX_MATCHES - len(self._lines))
        if rows:
            if unsaved is not None:
                self._told_unsaved.append(place.shown)
            lines = data.split(b"\n")
            for number, column in rows:
                self._add(place, number, text_of(lines[number - 1].removesuffix(b"\r")), column)
        if self._bytes >= MAX_TOTAL_BYTES:
            self.full = True

    def text(self) -> str:
        """Give the matching lines and the notes."""
        notes: list[str] = []
        if not self._lines and not self.full:
            notes.append(f"no line of {self._searched:,} files holds {shown(self._pattern[:100])!r}")
        if self.full:
            notes.append("stopped here, there may be more: name a path or a longer pattern")
        if self._told_unsaved:
            names = ", ".join(self._told_unsaved[:_TOLD_NAMES])
            more = f" and {len(self._told_unsaved) - _TOLD_NAMES} more" if len(self._told_unsaved) > _TOLD_NAMES else ""
            notes.append(f"unsaved text of an editor, the disk has another: {names}{more}")
        if self._large:
            notes.append(f"files above {MAX_FILE_BYTES >> 20} MiB that were not searched: {self._large:,}")
        if self._walk.cut:
            notes.append("the tree is too large to be searched whole: name a path")
        if self._unreadable + self._walk.unreadable:
            notes.append(f"files and folders that could not be read: {self._unreadable + self._walk.unreadable:,}")
        return "\n".join([*self._lines, *(f"[{note}]" for note in notes)])

    def _content(self, place: WorkspacePath) -> bytes | None:
        """Read a text file without its last line break; None for one without lines, or binary, too large, unreadable."""
        try:
            descriptor = self._workspace.open_file(place)
        except ToolFailure:  # gone or forbidden: one file must not hide the others
            if place == self._start:
                raise
            self._unreadable += 1
            return None
        try:
            data = read_up_to(descriptor, MAX_FILE_BYTES + 1)
        finally:
            os.close(descriptor)
        if not data or is_binary(data):
            return None
        if len(data) > MAX_FILE_BYTES:
            self._large += 1
            return None
        return data.removesuffix(b"\n")

    def _add(self, place: WorkspacePath, number: int, text: str, column: int) -> None:
        line = f"{place.shown}:{number}: {_clipped(text, column)}"
        self._room -= len(line) + 1
        if self._room < 0 or len(self._lines) >= MAX_MATCHES:
            self.full = True
        else:
            self._lines.append(line)
            self.full = self.full or len(self._lines) >= MAX_MATCHES


def _clipped(text: str, column: int) -> str:
    """Give at most MAX_LINE characters of a line, those around its match."""
    if len(text) <= MAX_LINE:
        return text
    start = max(0, min(column - MAX_LINE // 3, len(text) - MAX_LINE))
    end = start + MAX_LINE
    return f"{'...' if start else ''}{text[start:end]}{'...' if end < len(text) else ''}"
