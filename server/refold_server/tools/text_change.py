"""The change of one text file: what it is now, the diff that a person is shown, and making exactly that or nothing.

Tools give the new text; here it becomes a proposal. The text is that of an editor where the file has unsaved changes there,
else that of the disk, without the byte order mark, which stays. What was proposed is made only where the text still is the
one that it was proposed for, compared by digest; where it is by then, on disk or in the editor, does not matter.

In diffs lines end at `\\n` only; a `\\r` before it is part of the line, so that the diff, applied, gives the new text to the
byte.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from difflib import Match, SequenceMatcher
from itertools import islice
from pathlib import Path
from typing import Final, Literal, cast

import anyio
import anyio.to_thread
from msgspec import Struct

from refold_protocol.json_text import JsonText, compact_json
from refold_protocol.session.events import ApprovalSubject
from refold_protocol.session.messages import text_content
from refold_server.tools.atomic_write import is_writable, make_file, replace_file, stale
from refold_server.tools.open_buffers import OpenBuffer, UnsavedTexts
from refold_server.tools.repository import MAX_LEVELS, is_git_folder
from refold_server.tools.text_file import BYTE_ORDER_MARK, MAX_TEXT, digest, read_up_to
from refold_server.tools.tool import Proposal, ToolContext, ToolOutput
from refold_server.tools.tool_failure import ToolFailure, invalid_arguments
from refold_server.tools.tool_output import bound_text
from refold_server.tools.workspace_path import WorkspacePath

MAX_SHOWN: Final = 100_000
"""Characters of a diff that a person is shown."""

_CONTEXT: Final = 3
_MAX_COMPARED: Final = 5_000_000
"""Pairs of lines that are compared for one diff: a second or two. Where more would be needed, the rest is given as replaced."""

_NO_BREAK: Final = "\n\\ No newline at end of file\n"


class LineChange(Struct, frozen=True):
    """Lines `start` to before `end` of the old text became `new_start` to before `new_end` of the new. They count from 0."""

    start: int
    end: int
    new_start: int
    new_end: int


def lines_of(text: str) -> list[str]:
    """Split a text after each `\\n`; nothing is lost, and the last line may have no break."""
    lines = text.split("\n")
    return [line + "\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


def line_changes(old: Sequence[str], new: Sequence[str]) -> tuple[LineChange, ...]:
    """Give what differs, in order and apart; nothing for equal texts."""
    shorter = min(len(old), len(new))
    head = next((at for at in range(shorter) if old[at] != new[at]), shorter)
    room = shorter - head
    tail = next((at for at in range(room) if old[-1 - at] != new[-1 - at]), room)
    inner_old, inner_new = old[head : len(old) - tail], new[head : len(new) - tail]
    if not inner_old and not inner_new:
        return ()
    codes = _BoundedMatcher(inner_old, inner_new).get_opcodes()
    return tuple(LineChange(head + a, head + b, head + c, head + d) for tag, a, b, c, d in codes if tag != "equal")


def unified_diff(path: str, old: str | None, new: str) -> str:
    """Give the diff from `old`, None for a file that is new, to `new`, which must differ."""
    before, after = lines_of(old or ""), lines_of(new)
    end = "\t\n" if " " in path else "\n"  # as git writes it: else a program could take half of the name
    head = f"--- {'/dev/null' if old is None else 'a/' + path}{end}+++ b/{path}{end}"
    hunks = (_hunk(before, after, group) for group in _groups(line_changes(before, after)))
    return head + "".join(hunks)


def shown_diff(diff: str) -> str:
    """Give a diff as it is shown: whole, or its head and tail, with a first line that says so."""
    if len(diff) <= MAX_SHOWN:
        return diff
    note = (
        f"[This diff has {len(diff):,} characters, too many to be shown: its middle is left out. The change itself is made "
        "whole, with what is not shown here.]\n"
    )
    return note + bound_text(diff, MAX_SHOWN - len(note))


class _BoundedMatcher(SequenceMatcher[str]):
    """A matcher that finds no further match once it compared too much: its time is quadratic in the worst case."""

    def __init__(self, old: Sequence[str], new: Sequence[str]) -> None:
        super().__init__(None, old, new)
        self._left = _MAX_COMPARED
        places = cast("dict[str, list[int]]", vars(self)["b2j"])  # documented, but not in the types of the library
        self._costs = [1 + len(places.get(line, ())) for line in old]

    def find_longest_match(self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None) -> Match:
        """Give the longest run of equal lines, an empty one where finding it would take too long."""
        self._left -= sum(self._costs[alo:ahi])
        if self._left < 0:
            return Match(alo, blo, 0)
        return super().find_longest_match(alo, ahi, blo, bhi)


def _groups(changes: Sequence[LineChange]) -> Iterator[list[LineChange]]:
    """Put changes together whose surroundings touch."""
    group: list[LineChange] = []
    for change in changes:
        if group and change.start - group[-1].end > 2 * _CONTEXT:
            yield group
            group = []
        group.append(change)
    if group:
        yield group


def _hunk(old: Sequence[str], new: Sequence[str], group: Sequence[LineChange]) -> str:
    start = max(group[0].start - _CONTEXT, 0)
    end = min(group[-1].end + _CONTEXT, len(old))
    new_start = group[0].new_start - (group[0].start - start)
    new_end = group[-1].new_end + (end - group[-1].end)
    lines = [f"@@ -{_span(start, end)} +{_span(new_start, new_end)} @@\n"]
    at = start
    for change in group:
        lines += (" " + line for line in old[at : change.start])
        lines += ("-" + line for line in old[change.start : change.end])
        lines += ("+" + line for line in new[change.new_start : change.new_end])
        at = change.end
    lines += (" " + line for line in old[at:end])
    return "".join(line if line.endswith("\n") else line + _NO_BREAK for line in lines)


def _span(start: int, end: int) -> str:
    """Give a range as diffs do: the first line from 1 and the count, left out for one; the line before for none."""
    if end - start == 1:
        return str(start + 1)
    return f"{start + (end > start)},{end - start}"


_MAX_RANGES: Final = 10


class PresentText(Struct, frozen=True):
    """What a file holds now. `text` is None for one that is not there, and has no byte order mark; `data` is what the disk
    has; `buffer` is the file in an editor, if it is open, and `unsaved` tells that the text is from there."""

    text: str | None
    data: bytes
    buffer: OpenBuffer | None
    unsaved: bool

    @property
    def digest(self) -> str | None:
        """The SHA-256 of the text, None for a file that is not there."""
        return None if self.text is None else digest(self.text.encode())


class Change(Struct, frozen=True):
    """A new text for a file, in the words of the tool that makes it: `verb` is what it did, as in `edited`."""

    place: WorkspacePath
    present: PresentText
    after: str
    verb: Literal["edited", "wrote"]


def changeable(context: ToolContext, path: str) -> WorkspacePath:
    """Resolve a path that may be written to. Raises ToolFailure."""
    place = context.workspace.locate(path)
    if any(part.casefold() == ".git" for part in place.parts) or _is_in_git_folder(context.workspace.root, place):
        raise ToolFailure("DENIED", "GitInternals", f"{place.shown} belongs to git itself; no tool writes there")
    if path.endswith("/"):
        raise invalid_arguments(f"{place.shown}/ names a folder, not a file")
    return place


def _is_in_git_folder(root: Path, place: WorkspacePath) -> bool:
    """Tell whether a place lies in a folder that is git's own under another name, the workspace itself and those above it
    included: what stands there runs with the next `git` command."""
    whole = Path(os.path.realpath(root)).joinpath(*place.parts)
    return any(is_git_folder(folder) for folder in islice(whole.parents, MAX_LEVELS))


async def present_text(context: ToolContext, place: WorkspacePath) -> PresentText:
    """Read what a file holds now. Raises ToolFailure for what is not a text file, or too long to be changed."""
    buffers = await context.buffers.snapshot()
    return await anyio.to_thread.run_sync(_present, context, place, buffers, abandon_on_cancel=True)


async def proposal(context: ToolContext, change: Change) -> Proposal:
    """Give what a person is asked about, and the deed. Raises ToolFailure for a change that cannot be made."""
    diff = await anyio.to_thread.run_sync(_diff, context, change, abandon_on_cancel=True)

    async def apply() -> ToolOutput:
        return await _applied(context, change)

    return Proposal(ApprovalSubject("diff", diff), apply)


async def _applied(context: ToolContext, change: Change) -> ToolOutput:
    place, present = change.place, await present_text(context, change.place)
    if present.digest != change.present.digest:
        raise stale(place)
    after = change.after.encode()
    if present.unsaved and present.buffer is not None:
        before = (present.text or "").encode()
        await context.buffers.edit(present.buffer, change.after, f"refold: {place.shown}")
    else:
        before = None if present.text is None else present.data
        if present.data.startswith(BYTE_ORDER_MARK):
            after = BYTE_ORDER_MARK + after
        await anyio.to_thread.run_sync(_write, context, place, before, after)
        if present.buffer is not None:
            with anyio.CancelScope(shield=True):  # it is written: else the editor's old text would pass for unsaved changes
                await context.buffers.saved(present.buffer)
    if change.verb == "wrote" or context.seen.at(place) == change.present.digest:
        context.seen.note(place, after)  # who edits a passage of a text that was never read does not know the rest
    return _output(change, before, after, unsaved=present.unsaved)


def _present(context: ToolContext, place: WorkspacePath, buffers: Iterable[OpenBuffer]) -> PresentText:
    texts = UnsavedTexts(context.workspace, buffers)
    buffer, unsaved = texts.open_at(place), texts.at(place)
    if unsaved is not None:
        return PresentText(unsaved.decode(), b"", buffer, True)
    try:
        descriptor = context.workspace.open_file(place)
    except ToolFailure as failure:
        if failure.name != "FileNotFound":
            raise
        return PresentText(None, b"", None, False)
    try:
        data = read_up_to(descriptor, MAX_TEXT + 1)
    finally:
        os.close(descriptor)
    return PresentText(_text_of(place, data), data, buffer, False)


def _text_of(place: WorkspacePath, data: bytes) -> str:
    if len(data) > MAX_TEXT:
        raise ToolFailure("TOOL_FAILED", "TooLong", f"{place.shown} is longer than {MAX_TEXT >> 20} MiB; it is not changed")
    if b"\0" in data:
        raise ToolFailure("TOOL_FAILED", "NotText", f"{place.shown} is a binary file; it is not changed")
    try:
        return data.removeprefix(BYTE_ORDER_MARK).decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        reason = f"{place.shown} is not UTF-8 text (see line {line}); it is not changed"
        raise ToolFailure("TOOL_FAILED", "NotText", reason) from None


def _diff(context: ToolContext, change: Change) -> str:
    place, before = change.place, change.present.text
    if "\0" in change.after:
        raise invalid_arguments("a text file holds no NUL character; nothing was changed")
    if len(change.after.encode()) > MAX_TEXT:
        raise invalid_arguments(f"the new text is longer than {MAX_TEXT >> 20} MiB; nothing was changed")
    if before == change.after:
        reason = f"{place.shown} has exactly that text already; nothing was changed"
        raise ToolFailure("TOOL_FAILED", "NothingToChange", reason)
    if before is not None and not change.present.unsaved and not is_writable(context.workspace, place):
        raise ToolFailure("TOOL_FAILED", "NoPermission", f"{place.shown} may not be written by this user")
    return shown_diff(unified_diff(place.shown, before, change.after))


def _write(context: ToolContext, place: WorkspacePath, before: bytes | None, after: bytes) -> None:
    if before is None:
        make_file(context.workspace, place, after)
    else:
        replace_file(context.workspace, place, before, after)


def _output(change: Change, before: bytes | None, after: bytes, *, unsaved: bool) -> ToolOutput:
    place, old = change.place, change.present.text
    new = lines_of(change.after)
    if old is None:
        said = f"made {place.shown}, {len(new):,} line{'' if len(new) == 1 else 's'}"
    else:
        said = f"{change.verb} {place.shown}: {_ranges(line_changes(lines_of(old), new))}"
    if unsaved:
        said += "\n[it is open in an editor with unsaved changes, so this was done there; the disk has the old text]"
    return ToolOutput(text_content(said), _meta(place, before, after, unsaved=unsaved))


def _ranges(changes: tuple[LineChange, ...]) -> str:
    """Say which lines of the new text are new, or between which some are gone."""
    said = [_range(change) for change in changes[:_MAX_RANGES]]
    more = len(changes) - len(said)
    return ", ".join(said) + (f" and {more:,} more places" if more > 1 else " and 1 more place" if more else "")


def _range(change: LineChange) -> str:
    if change.new_start == change.new_end:
        gone = change.end - change.start
        return f"{gone:,} line{'' if gone == 1 else 's'} removed behind line {change.new_start}"
    first, last = change.new_start + 1, change.new_end
    return f"line {first}" if first == last else f"lines {first}-{last}"


def _meta(place: WorkspacePath, before: bytes | None, after: bytes, *, unsaved: bool) -> JsonText:
    """Give path, digests of all bytes before and after, and where they are, for programs."""
    sums = {"before": None if before is None else digest(before), "after": digest(after)}
    return compact_json({"path": place.shown, **sums, "unsaved": unsaved})
