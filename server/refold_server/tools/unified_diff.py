"""Owns unified diffs: what differs between two texts by lines, and the form in which people are shown it.

Lines end at `\\n` only; a `\\r` before it is part of the line, so that the diff, applied, gives the new text to the byte. The
work is bounded: where two texts differ too much for a short diff to be found soon, all that lies between their common start
and end is given as replaced. Pure.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct

from refold_server.tools.output import bound_text

MAX_SHOWN: Final = 100_000
"""Characters of a diff that a person is shown."""

_CONTEXT: Final = 3
_MAX_EDITS: Final = 1_000
_MAX_COMPARED: Final = 1_000_000
_NO_BREAK: Final = "\n\\ No newline at end of file\n"


class LineChange(Struct, frozen=True):
    """Lines `start` to before `end` of the old text became `new_start` to before `new_end` of the new. They count from 0."""

    start: int
    end: int
    new_start: int
    new_end: int


def lines_of(text: str) -> list[str]:
    """Split a text behind each `\\n`; nothing is lost, and the last line may have no break."""
    lines = text.split("\n")
    return [line + "\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


def line_changes(old: Sequence[str], new: Sequence[str]) -> tuple[LineChange, ...]:
    """Give what differs, in order and apart; nothing for equal texts."""
    shorter = min(len(old), len(new))
    head = next((at for at in range(shorter) if old[at] != new[at]), shorter)
    room = shorter - head
    tail = next((at for at in range(room) if old[-1 - at] != new[-1 - at]), room)
    old_end, new_end = len(old) - tail, len(new) - tail
    if head == old_end and head == new_end:
        return ()
    kept = _common(old[head:old_end], new[head:new_end])
    return tuple(_between(kept, head, old_end, new_end))


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


def _between(kept: Sequence[tuple[int, int]], head: int, old_end: int, new_end: int) -> Iterator[LineChange]:
    """Give what lies between kept lines, which come as pairs of numbers behind `head`."""
    at, new_at = head, head
    for one, other in (*((head + one, head + other) for one, other in kept), (old_end, new_end)):
        if at < one or new_at < other:
            yield LineChange(at, one, new_at, other)
        at, new_at = one + 1, other + 1


def _common(old: Sequence[str], new: Sequence[str]) -> list[tuple[int, int]]:
    """Give pairs of equal lines, both numbers ascending: a longest such list, by the algorithm of Myers (An O(ND) Difference
    Algorithm and Its Variations, 1986). Nothing where that would take too long."""
    if not old or not new:
        return []
    most = min(len(old) + len(new), _MAX_EDITS)
    reached = array("q", [0]) * (2 * most + 3)  # by diagonal; a negative one counts from the end
    history: list[array[int]] = []
    compared = 0
    for edits in range(most + 1):
        history.append(reached[:])
        for diagonal in range(-edits, edits + 1, 2):
            down = diagonal == -edits or (diagonal != edits and reached[diagonal - 1] < reached[diagonal + 1])
            at = reached[diagonal + 1] if down else reached[diagonal - 1] + 1
            start = at
            while at < len(old) and at - diagonal < len(new) and old[at] == new[at - diagonal]:
                at += 1
            compared += at - start + 1
            reached[diagonal] = at
            if at >= len(old) and at - diagonal >= len(new):
                return _traced(history, len(old), len(new))
        if compared > _MAX_COMPARED:
            break
    return []


def _traced(history: Sequence[array[int]], at: int, new_at: int) -> list[tuple[int, int]]:
    """Walk back from the end of both texts through what was reached with each number of edits."""
    kept: list[tuple[int, int]] = []
    for edits in range(len(history) - 1, -1, -1):
        reached, diagonal = history[edits], at - new_at
        down = diagonal == -edits or (diagonal != edits and reached[diagonal - 1] < reached[diagonal + 1])
        before = diagonal + 1 if down else diagonal - 1
        start = reached[before]
        while at > start and new_at > max(start - before, 0):
            at, new_at = at - 1, new_at - 1
            kept.append((at, new_at))
        at, new_at = start, start - before
    kept.reverse()
    return kept


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
