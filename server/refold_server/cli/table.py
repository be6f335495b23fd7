"""Owns how a list of sessions is laid out for a person: columns that fit a width, however wide the letters are.

Pure: rows and a width in, lines out. What does not fit is left out column by column, ids never: they are there to be copied.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

from refold_protocol.rpc.listing import SessionRow
from refold_server.cli.people import one_line
from refold_server.cli.screen import Look

MIN_TITLE: Final = 12
"""Columns that a title gets before other columns are left out."""

MAX_TITLE: Final = 60
"""Columns that a title takes at most."""

MAX_MODEL: Final = 28
"""Columns that the name of a model takes at most."""

GAP: Final = "  "
"""Between two columns."""

_LEFT_OUT_FIRST: Final = ("model", "turns", "when", "status")


def session_lines(rows: Sequence[SessionRow], width: int, look: Look) -> Iterator[str]:
    """Give a heading and a line for each row; nothing for no rows. `width` is in columns of the terminal. Times are local."""
    if not rows:
        return
    cells = [_cells(row) for row in rows]
    names = _shown(cells, width)
    widths = {name: max(columns_of(name), *(columns_of(cell[name]) for cell in cells)) for name in names}
    others = sum(widths[name] + len(GAP) for name in names if name != "title")
    widths["title"] = max(1, min(widths["title"], width - others))
    yield look.dim(_line({name: name for name in names}, names, widths))
    for cell in cells:
        yield _line(cell, names, widths)


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


def _cells(row: SessionRow) -> dict[str, str]:
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
    for name in _LEFT_OUT_FIRST:
        others = sum(max(columns_of(n), *(columns_of(c[n]) for c in cells)) + len(GAP) for n in names if n != "title")
        if others + MIN_TITLE <= width:
            break
        names.remove(name)
    return names


def _line(cell: dict[str, str], names: Sequence[str], widths: dict[str, int]) -> str:
    parts: list[str] = []
    for name in names:
        text = fitted(cell[name], widths[name])
        room = " " * (widths[name] - columns_of(text))
        parts.append(room + text if name == "turns" else text + room)
    return GAP.join(parts).rstrip()


def _columns(letter: str) -> int:
    if unicodedata.category(letter) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in ("W", "F") else 1
