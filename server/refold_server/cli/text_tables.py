"""Text tables: rows under headings, the list of sessions, and the plot of a window's pressure, within a width.

Pure: rows and a width in, lines out. Of the list of sessions, whole columns are left out where it is too narrow, but never
the ids: they are there to be copied.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from itertools import pairwise
from textwrap import wrap
from typing import TYPE_CHECKING, Final

from refold_server.cli.formatting import one_line
from refold_server.cli.terminal import Style

if TYPE_CHECKING:
    from refold_protocol.session.meter import PressureRow
    from refold_server.sessions.session_list import SessionRow

MIN_TITLE: Final = 12
"""Columns that a title gets before other columns are left out."""

MAX_TITLE: Final = 60
"""Columns that a title takes at most."""

MAX_MODEL: Final = 28
"""Columns that the name of a model takes at most."""

GAP: Final = "  "
"""Between two columns."""

_DROPPED_FIRST: Final = ("model", "turns", "when", "status")

HEIGHT: Final = 12
"""Lines of the picture, without its axis."""

_MIN_LEGEND: Final = 20
"""Columns that the words below the picture take at least."""

_EIGHTHS: Final = " ▁▂▃▄▅▆▇█"


def aligned(rows: Sequence[Sequence[str]], left: Collection[int] = (0,)) -> list[str]:
    """Give rows as lines whose columns stand below each other: those of `left` begin at the left, the others end at the
    right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        GAP.join(
            text.ljust(width) if at in left else text.rjust(width)
            for at, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]


def session_lines(rows: Sequence[SessionRow], width: int, style: Style) -> Iterator[str]:
    """Give a heading and a line for each row; nothing for no rows. `width` is in columns of the terminal. Times are local."""
    if not rows:
        return
    cells = [_session_cells(row) for row in rows]
    names = _shown(cells, width)
    widths = {name: max(columns_of(name), *(columns_of(cell[name]) for cell in cells)) for name in names}
    others = sum(widths[name] + len(GAP) for name in names if name != "title")
    widths["title"] = max(1, min(widths["title"], width - others))
    yield style.dim(_session_line({name: name for name in names}, names, widths))
    for cell in cells:
        yield _session_line(cell, names, widths)


def columns_of(text: str) -> int:
    """Give the columns that a printable text takes on a terminal: wide letters two, marks on other letters none."""
    return sum(_columns(letter) for letter in text)


def fitted(text: str, width: int) -> str:
    """Cut a text on one line to `width` columns, the last of them an ellipsis where something was cut."""
    if columns_of(text) <= width:
        return text
    kept, used = "", 0
    for letter in text:
        used += _columns(letter)
        if used > width - 1:
            break
        kept += letter
    return f"{kept}…"


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
    columns = _plot_columns(known, max(1, width - margin - 2))
    for line, label in enumerate(labels):
        mark = label if line % 4 == 0 else ""
        bars = "".join(_cell(row, top, HEIGHT - 1 - line) for row in columns)
        yield f"{mark.rjust(margin)} │{bars}".rstrip()
    yield f"{'0'.rjust(margin)} └{'─' * len(columns)}"
    anchored = "".join("·" if row.anchor is None else " " for row in columns)
    if anchored.strip():
        yield f"{' ' * (margin + 2)}{anchored}".rstrip()
    yield from wrap(_legend(known, columns, highest, window, dotted=bool(anchored.strip())), max(_MIN_LEGEND, width))


def _session_cells(row: SessionRow) -> dict[str, str]:
    title = "-" if row.title is None else fitted(one_line(row.title, MAX_TITLE * 2), MAX_TITLE)
    return {
        "title": title or "-",
        "when": _when(row.last_activity),
        "turns": str(row.turns),
        "model": "-" if row.model is None else fitted(one_line(row.model, MAX_MODEL * 2), MAX_MODEL),
        "status": one_line(row.status, 20),
        "id": one_line(row.session, 200),
    }


def _when(time: int) -> str:
    try:
        return datetime.fromtimestamp(time / 1000).strftime("%Y-%m-%d %H:%M")
    except (OverflowError, ValueError, OSError):  # a year that calendars here do not have: the list shows the rest all the same
        return "-"


def _shown(cells: Sequence[dict[str, str]], width: int) -> list[str]:
    names = list(cells[0])
    for name in _DROPPED_FIRST:
        others = sum(max(columns_of(n), *(columns_of(c[n]) for c in cells)) + len(GAP) for n in names if n != "title")
        if others + MIN_TITLE <= width:
            break
        names.remove(name)
    return names


def _session_line(cell: dict[str, str], names: Sequence[str], widths: dict[str, int]) -> str:
    parts: list[str] = []
    for name in names:
        text = fitted(cell[name], widths[name])
        padding = " " * (widths[name] - columns_of(text))
        parts.append(padding + text if name == "turns" else text + padding)
    return GAP.join(parts).rstrip()


def _columns(letter: str) -> int:
    if unicodedata.category(letter) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in ("W", "F") else 1


def _plot_columns(rows: Sequence[PressureRow], width: int) -> list[PressureRow]:
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
