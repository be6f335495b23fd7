"""The tool `list_files`: the files of the workspace, one path a line, in an order that never changes by itself.

A tree with more files than one answer should hold is folded: the deepest folders are named with the number of files
below them, level by level, until the rest fits. Reads names only, never content.
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Final

import anyio.from_thread
import anyio.to_thread
from msgspec import Meta, Struct

from refold_protocol.json_text import compact_json
from refold_protocol.session.messages import ToolSchema
from refold_server.tools.ignore_rules import is_named, read_globs
from refold_server.tools.tool import ToolContext, ToolOutput, text_output
from refold_server.tools.tool_failure import ToolFailure
from refold_server.tools.tree_walk import MAX_ENTRIES, Entry, Walk
from refold_server.tools.workspace_path import Workspace, shown

MAX_LINES: Final = 1_000
"""Paths that one answer holds."""


class ListFilesParams(Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of `list_files`."""

    path: str | None = None
    pattern: Annotated[str, Meta(min_length=1, max_length=1_000)] | None = None


class ListFiles:
    """The tool."""

    schema = ToolSchema(
        name="list_files",
        description=(
            "List the files of the workspace, with their paths relative to it, one a line. Files that git ignores are "
            "left out. In a large tree deep folders are shown as `folder/ (N files)`: list them by giving their path."
        ),
        parameters=compact_json(
            {
                "type": "object",
                "properties": {
                    "path": {
                        "type": "string",
                        "description": "The folder to list, relative to the workspace. Default: the workspace.",
                    },
                    "pattern": {
                        "type": "string",
                        "minLength": 1,
                        "maxLength": 1000,
                        "description": (
                            "List only files that match this glob, relative to `path`: `*.py` matches at any depth, "
                            "`src/**/*.{ts,tsx}` below src."
                        ),
                    },
                },
                "required": [],
                "additionalProperties": False,
            }
        ),
    )
    read_only = True
    params = ListFilesParams

    async def run(self, context: ToolContext, params: ListFilesParams) -> ToolOutput:
        """List. Raises ToolFailure."""
        text = await anyio.to_thread.run_sync(_list, context.workspace, params, abandon_on_cancel=True)
        return text_output(text)


def _list(workspace: Workspace, params: ListFilesParams) -> str:
    start = workspace.locate(params.path or ".")
    if not workspace.is_folder(start):
        raise ToolFailure("TOOL_FAILED", "NotAFolder", f"{start.shown} is a file, not a folder; read_file reads it")
    depth = len(start.parts)
    globs = None if params.pattern is None else read_globs(params.pattern)
    walk = Walk(workspace, start, anyio.from_thread.check_cancelled)
    entries = [entry for entry in walk.entries() if globs is None or is_named(globs, entry.place.parts[depth:])]
    lines = _folded(entries, depth)
    notes: list[str] = []
    if not entries:
        notes.append("no files" if params.pattern is None else f"no file matches {shown(params.pattern)}")
    if len(lines) > MAX_LINES:
        notes.append(f"the first {MAX_LINES:,} of {len(lines):,} names; give a pattern to see others")
    if walk.cut:
        limits = f"more than {MAX_ENTRIES:,} entries, very deep ones, or rules of what git ignores that take long"
        notes.append(f"not everything was looked at: the tree has {limits}")
    if walk.unreadable:
        notes.append(f"folders that could not be read: {walk.unreadable:,}")
    return "\n".join([*lines[:MAX_LINES], *(f"[{note}]" for note in notes)])


def _folded(entries: list[Entry], depth: int) -> list[str]:
    """Give a line for each file, or, when these are too many, for each file and folder down to the deepest level that
    fits; the level just below `depth` if none does."""
    lines = [_line(entry) for entry in entries]
    level = max((len(entry.place.parts) for entry in entries), default=0) - 1
    while len(lines) > MAX_LINES and level > depth:
        lines = _at_level(entries, level)
        level -= 1
    return lines


def _at_level(entries: list[Entry], level: int) -> list[str]:
    """Give a line for each file at most `level` parts deep, and one for each folder of that depth with files below."""
    counts = Counter(entry.place.parts[:level] for entry in entries if len(entry.place.parts) > level)
    lines: list[str] = []
    told: set[tuple[str, ...]] = set()
    for entry in entries:
        folder = entry.place.parts[:level]
        if len(entry.place.parts) <= level:
            lines.append(_line(entry))
        elif folder not in told:
            told.add(folder)
            lines.append(f"{shown('/'.join(folder))}/ ({counts[folder]:,} files)")
    return lines


def _line(entry: Entry) -> str:
    return entry.place.shown if entry.target is None else f"{entry.place.shown} -> {shown(entry.target)}"
