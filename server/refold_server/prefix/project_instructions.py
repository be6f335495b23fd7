"""The contributor `instructions`: what the project's own files tell whoever works in it, the nearest last.

Each folder from the repository's root down to the session's may have one: the first of NAMES that says something. The files
that only some programs read come after the one for all, because where both are there, one of them mostly points to the other.
A file that is only the name of another one, and a line `@NAME`, stand for that file where it lies in the repository.
The text of all files together is bounded; the nearest is kept whole, as far as the bound goes, and those above it get what
it left. What could not be read is told in its place. No file can close what stands around it. Reads the disk, not what an
editor has unsaved.
"""

from __future__ import annotations

import codecs
import os
from pathlib import Path
from typing import Final

import anyio.to_thread
from msgspec import Struct

from refold_protocol.session.projection import enclosed_text
from refold_server.tools.repository import Repository, find_repository
from refold_server.tools.text_file import BYTE_ORDER_MARK, read_up_to
from refold_server.tools.tool_failure import ToolFailure
from refold_server.tools.workspace_path import Workspace, WorkspacePath

NAMES: Final = ("AGENTS.md", "CLAUDE.md", "GEMINI.md")
"""Names of such files; of a folder's the first that is there counts."""

MAX_BYTES: Final = 32 << 10
"""Bytes of UTF-8 that the texts of all files have together."""

_MAX_NAME: Final = 200
"""Characters of the name of a file that another one names."""

_MAX_FILES: Final = 16
"""Files that one file stands for, itself included."""

_HEAD: Final = """\
Instructions of this project for whoever works in it. They hold for the folder of the file that gives them and what is below;
where two differ, the later one, which is nearer to the session's folder, holds."""


class FoundFile(Struct, frozen=True):
    """A file of instructions: its path as it is told, its size in bytes, and the start of its text, or what is wrong."""

    path: str
    size: int = 0
    text: str = ""
    trouble: str | None = None


async def instructions(cwd: str, home: Path | None) -> str | None:
    """Give the instructions that hold in `cwd`, None when there are none."""
    return await anyio.to_thread.run_sync(_written, Path(cwd), home, abandon_on_cancel=True)


def bounded(files: list[FoundFile], limit: int = MAX_BYTES) -> list[str]:
    """Give what is said of each file, farthest first as they come; their texts have at most `limit` bytes together."""
    sections: list[str] = []
    room = limit
    for file in reversed(files):
        body, used = _body(file, room)
        room -= used
        inside = enclosed_text("instructions", body)
        sections.append(f'<instructions file="{file.path}">\n{inside}\n</instructions>')
    return sections[::-1]


def _written(cwd: Path, home: Path | None) -> str | None:
    repository = find_repository(cwd, home)
    files = [] if repository is None else _files(repository)
    return "\n\n".join([_HEAD, *bounded(files)]) if files else None


def _files(repository: Repository) -> list[FoundFile]:
    found = (_found(repository, folder) for folder in repository.folders)
    return [file for file in found if file is not None]


def _found(repository: Repository, folder: WorkspacePath) -> FoundFile | None:
    """Give the file of one folder; None where there is none, or none that says anything. One that cannot be read is told only
    where no other can be."""
    broken: FoundFile | None = None
    for name in NAMES:
        place = folder.child(name)
        if not os.path.lexists(repository.workspace.root / place.text):
            continue
        told = repository.seen(place).replace('"', "\ufffd")
        try:
            size, text = _read(repository.workspace, place)
        except ToolFailure as failure:
            broken = broken or FoundFile(told, trouble=failure.message.removeprefix(f"{place.shown} "))
            continue
        if text.strip():
            whole = _followed(repository.workspace, place, text, {place})
            return FoundFile(told, max(size, len(whole.encode())), whole)
    return broken


def _followed(workspace: Workspace, place: WorkspacePath, text: str, seen: set[WorkspacePath]) -> str:
    """Give a text with the files that it names in place of their names; `seen` holds those that were taken already."""
    name = text.strip()
    if "\n" not in name and len(name) <= _MAX_NAME:
        return _named(workspace, place, name, seen) or text
    lines: list[str] = []
    for line in text.split("\n"):
        name = line.strip().removeprefix("@")
        named = name != line.strip() and 0 < len(name) <= _MAX_NAME and " " not in name
        found = _named(workspace, place, name, seen, told=True) if named and len(seen) < _MAX_FILES else None
        lines.append(line if found is None else found)
    return "\n".join(lines)


def _named(
    workspace: Workspace, place: WorkspacePath, name: str, seen: set[WorkspacePath], *, told: bool = False
) -> str | None:
    """Give the text of the file that is named at a place, relative to its folder; None where there is none: with `told`, what
    is wrong is said instead."""
    try:
        there = workspace.locate("/".join((*place.parts[:-1], name.removeprefix("@"))))
        if there in seen:
            return "" if told else None
        text = _read(workspace, there)[1]
    except ToolFailure as failure:
        return f"@{name} [it was not read: {failure.message}]" if told else None
    except UnicodeEncodeError:  # no file of this system can have such a name
        return None
    seen.add(there)
    return _followed(workspace, there, text.strip("\r\n"), seen)


def _read(workspace: Workspace, place: WorkspacePath) -> tuple[int, str]:
    """Give a file's size, and as much of its text as could be used. Raises ToolFailure."""
    descriptor = workspace.open_file(workspace.locate(place.text))
    try:
        data = read_up_to(descriptor, MAX_BYTES + len(BYTE_ORDER_MARK) + 1)
        size = max(os.fstat(descriptor).st_size, len(data))
    finally:
        os.close(descriptor)
    wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    decoder = codecs.getincrementaldecoder("utf-16" if wide else "utf-8")()
    try:
        text = decoder.decode(data.removeprefix(BYTE_ORDER_MARK), final=len(data) == size)
    except UnicodeDecodeError:
        raise ToolFailure("TOOL_FAILED", "NotText", "is not UTF-8") from None
    if "\0" in text:
        raise ToolFailure("TOOL_FAILED", "NotText", "is not text")
    return size, text.replace("\r\n", "\n") if wide else text


def _body(file: FoundFile, room: int) -> tuple[str, int]:
    """Give what is said of a file whose text may have `room` bytes, and the bytes of its text that this takes."""
    if file.trouble is not None:
        return f"[it was not read: it {file.trouble}]", 0
    text = file.text.strip("\r\n")
    data = text.encode()
    whole = file.size <= MAX_BYTES + len(BYTE_ORDER_MARK)
    if whole and len(data) <= room:
        return text, len(data)
    kept = _cut(data, room)
    note = f"[the rest of its {file.size:,} bytes is left out here: instructions have room for {MAX_BYTES:,} in all]"
    return f"{kept}\n{note}" if kept else note.replace("the rest of its", "its"), len(kept.encode())


def _cut(data: bytes, room: int) -> str:
    """Give whole lines from the start of `data` in at most `room` bytes; part of the first where it is longer than that."""
    if room <= 0:
        return ""
    head = data[:room]
    if len(data) > room and data[room : room + 1] != b"\n" and b"\n" in head:
        head = head[: head.rindex(b"\n")]
    return head.decode("utf-8", "ignore").rstrip("\r\n")
