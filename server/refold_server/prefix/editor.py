"""Owns the contributor `editor`: which files of the workspace the person has open when a session is opened.

Names and languages only: the text is what tools read, and it changes while the session runs. A document that is no file of
the workspace is not told. Without an editor there is nothing to say.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, Protocol

import anyio.to_thread

from refold_server.tools.open_buffers import OpenBuffer
from refold_server.tools.tool_failure import ToolFailure
from refold_server.tools.workspace_path import Workspace, shown

MAX_FILES: Final = 50
"""Files that are named."""

MAX_LANGUAGE: Final = 40
"""Characters that the name of a language may have; a longer one is no name."""

_HEAD: Final = "Open in the person's editor when this session was opened:"


class OpenFiles(Protocol):
    """The part of what an editor has open that is looked at here."""

    async def snapshot(self) -> tuple[OpenBuffer, ...]:
        """Give all of it as of now."""
        ...


async def editor(cwd: str, buffers: OpenFiles) -> str | None:
    """Give the files that are open, None when none is."""
    opened = await buffers.snapshot()
    if not opened:
        return None
    return await anyio.to_thread.run_sync(_written, Path(cwd), opened, abandon_on_cancel=True)


def _written(cwd: Path, opened: tuple[OpenBuffer, ...]) -> str | None:
    workspace = Workspace(cwd)
    languages: dict[str, str] = {}
    for buffer in sorted(opened, key=lambda buffer: (buffer.path, buffer.language)):
        try:
            place = workspace.locate(buffer.path)
        except ToolFailure:  # not of this workspace
            continue
        if place.parts:
            languages.setdefault(place.shown, buffer.language)
    files = sorted(languages)
    if not files:
        return None
    lines = [f"- {file}{_language(languages[file])}" for file in files[:MAX_FILES]]
    if len(files) > MAX_FILES:
        lines.append(f"… and {len(files) - MAX_FILES:,} more")
    return "\n".join([_HEAD, *lines])


def _language(name: str) -> str:
    return f" ({shown(name)})" if name.strip() and len(name) <= MAX_LANGUAGE else ""
