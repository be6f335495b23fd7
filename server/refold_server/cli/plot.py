"""Owns the picture of pressure per request: columns of block characters that fit a terminal. Pure: rows and a width in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from textwrap import wrap
from typing import Final

from refold_protocol.session.meter_rows import PressureRow

HEIGHT: Final = 12
"""Lines of the picture, without its axis."""

_LEAST: Final = 20
"""Columns that the words below the picture take in any case."""

_EIGHTHS: Final = " ▁▂▃▄▅▆▇█"


def plot_lines(rows: Sequence[PressureRow], width: int) -> Iterator[str]:
    """Give the picture, `width` columns wide at most where its margin has room: one column a request, or the highest of several
    where there are more requests than columns. Its top is the highest pressure, or the window where pressure comes near it."""
    known = [row for row in rows if row.tokens is not None and row.window is not None]
    if not known:
        return
    highest = max(row.tokens or 0 for row in known)
    window = max(row.window or 0 for row in known)
    top = max(1, window if highest <= window < 2 * highest else highest)
    labels = [f"{round(top * (HEIGHT - line) / HEIGHT):,}" for line in range(HEIGHT)]
    margin = max(map(len, labels))
    columns = _columns(known, max(1, width - margin - 2))
    for line, label in enumerate(labels):
        mark = label if line % 4 == 0 else ""
        bars = "".join(_cell(row, top, HEIGHT - 1 - line) for row in columns)
        yield f"{mark.rjust(margin)} │{bars}".rstrip()
    yield f"{'0'.rjust(margin)} └{'─' * len(columns)}"
    anchored = "".join("·" if row.anchor is None else " " for row in columns)
    if anchored.strip():
        yield f"{' ' * (margin + 2)}{anchored}".rstrip()
    yield from wrap(_legend(known, columns, highest, window, dotted=bool(anchored.strip())), max(_LEAST, width))


def _columns(rows: Sequence[PressureRow], width: int) -> list[PressureRow]:
    """Give at most `width` rows: the highest of each of as many runs of equal length."""
    if len(rows) <= width:
        return list(rows)
    edges = [at * len(rows) // width for at in range(width + 1)]
    runs = (rows[first:last] for first, last in pairwise(edges))
    return [max(run, key=lambda row: row.tokens or 0) for run in runs]


def _cell(row: PressureRow, top: int, line: int) -> str:
    """Give the piece of a bar on a line, counted from the bottom. The smallest pressure is still to be seen."""
    tokens = row.tokens or 0
    eighths = max(1, round(tokens * HEIGHT * 8 / top)) if tokens else 0
    return _EIGHTHS[max(0, min(8, eighths - line * 8))]


def _legend(rows: Sequence[PressureRow], columns: Sequence[PressureRow], highest: int, window: int, *, dotted: bool) -> str:
    first, last = rows[0], rows[-1]
    each = "" if len(columns) == len(rows) else f", {len(rows) / len(columns):.1f} a column"
    words = f"requests {first.turn}.{first.step} to {last.turn}.{last.step}{each}; highest {highest:,} of {window:,} tokens"
    return f"{words}; · estimated" if dotted else words
