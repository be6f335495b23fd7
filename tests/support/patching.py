"""Patcher for tests: it knows the form of unified diffs from its description alone, and checks every line it meets."""

from __future__ import annotations

import re

_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


def patched(text: str, diff: str) -> str:
    """Apply a unified diff to a text. Every context and removed line must be there, and every number true."""
    old, new = _lines(text), list[str]()
    rows = diff.split("\n")
    assert rows[0].startswith("--- ")
    assert rows[1].startswith("+++ ")
    assert rows.pop() == ""
    at, row = 0, 2
    while row < len(rows):
        header = _HUNK.fullmatch(rows[row])
        assert header is not None, rows[row]
        counts = [1 if header[group] is None else int(header[group]) for group in (2, 4)]
        start, new_start = int(header[1]) - (counts[0] > 0), int(header[3]) - (counts[1] > 0)
        new += old[at:start]
        assert len(new) == new_start
        at, row = start, row + 1
        while counts != [0, 0]:
            kind, line = rows[row][0], rows[row][1:] + "\n"
            row += 1
            if row < len(rows) and rows[row].startswith("\\"):
                line, row = line[:-1], row + 1
            if kind in " -":
                assert old[at] == line
                at, counts[0] = at + 1, counts[0] - 1
            if kind in " +":
                new.append(line)
                counts[1] -= 1
    return "".join(new + old[at:])


def _lines(text: str) -> list[str]:
    return re.findall(r"[^\n]*\n|[^\n]+", text)
