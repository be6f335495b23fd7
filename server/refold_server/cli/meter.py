"""Owns `refold meter`: how full the model's window was at each request of a session, and how far off the meter was."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

import msgspec

from refold_protocol.ids import SessionId
from refold_protocol.session.meter_rows import PressureRow
from refold_server.cli.exits import COMPLETED
from refold_server.cli.interrupts import run_reading
from refold_server.cli.opened import opened, read_config
from refold_server.cli.people import one_line
from refold_server.cli.plot import plot_lines
from refold_server.cli.screen import Look, Screen
from refold_server.cli.verify import progress
from refold_server.sessions.metering import Metered, request_pressures
from refold_server.sessions.reading import reading

_HEADINGS: Final = ("step", "pressure", "window", "from", "estimate", "reported", "error")
_LEFT: Final = (0, 3)
"""Columns that begin at the left; figures end at the right."""


def command(options: argparse.Namespace) -> int:
    """Show how full the window was at each request."""
    return run_reading(partial(_command, options))


async def _command(options: argparse.Namespace) -> int:
    out, aside = Screen(sys.stdout), Screen(sys.stderr, vital=False)
    async with (
        opened(read_config(options)) as around,
        reading(around.sessions, SessionId(options.session)) as (handle, _),
    ):
        with progress(aside, handle.tail + 1) as told:
            metered = await request_pressures(around.shared.meters, handle, options.model, told)
    for line in _lines(metered.rows, out.look, options):
        out.put_bytes(line)
    out.flush()
    _tell_aside(metered, aside)
    return COMPLETED


def table_lines(rows: Sequence[PressureRow], look: Look) -> Iterator[str]:
    """Give a heading, a line for each request, and a summary; nothing for no requests. A model stands where it changes."""
    if not rows:
        return
    cells = [_cells(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(_HEADINGS, *cells, strict=True)]
    yield look.dim(_line(_HEADINGS, widths))
    shown = None
    for row, cell in zip(rows, cells, strict=True):
        if (row.model, row.metered) != shown:
            shown = (row.model, row.metered)
            yield look.dim(_model_words(row))
        line = _line(cell, widths)
        full = row.tokens is not None and row.window is not None and row.tokens > row.window
        yield look.red(line) if full else line
    yield _summary(rows)


def _lines(rows: Sequence[PressureRow], look: Look, options: argparse.Namespace) -> Iterator[bytes]:
    if options.json:
        yield from (msgspec.json.encode(row) + b"\n" for row in rows)
        return
    shown = plot_lines(rows, shutil.get_terminal_size().columns) if options.plot else table_lines(rows, look)
    yield from (f"{line}\n".encode() for line in shown)


def _tell_aside(metered: Metered, aside: Screen) -> None:
    for error in metered.unmetered:
        aside.line(aside.look.dim(one_line(error.message, 400)))
    if not metered.rows:
        aside.line(aside.look.dim("(no request was sent yet)"))


def _model_words(row: PressureRow) -> str:
    window = "window unknown" if row.window is None else f"window {row.window:,}"
    name = one_line(row.model, 120)
    return f"{name}, {window}" if row.model == row.metered else f"{name}, metered as {one_line(row.metered, 120)}, {window}"


def _cells(row: PressureRow) -> tuple[str, ...]:
    place = f"{row.turn}.{row.step}" + (f" try {row.attempt}" if row.attempt > 1 else "")
    if row.tokens is None or row.window is None:
        return (place, "?", "?", "-", "?", _count(row.reported), "?")
    source = "estimate" if row.anchor is None else f"usage at {row.anchor}"
    share = f"{row.tokens / row.window:.1%}"
    return (place, f"{row.tokens:,}", share, source, _count(row.estimate), _count(row.reported), _share(row.error))


def _count(number: int | None) -> str:
    return "?" if number is None else f"{number:,}"


def _share(error: float | None) -> str:
    return "?" if error is None else f"{error:+.1%}"


def _line(cell: Sequence[str], widths: Sequence[int]) -> str:
    texts = (
        text.ljust(width) if at in _LEFT else text.rjust(width)
        for at, (text, width) in enumerate(zip(cell, widths, strict=True))
    )
    return "  ".join(texts).rstrip()


def _summary(rows: Sequence[PressureRow]) -> str:
    parts = [f"{len(rows)} request{'' if len(rows) == 1 else 's'}"]
    shares = [row.tokens / row.window for row in rows if row.tokens is not None and row.window is not None]
    if shares:
        parts.append(f"at most {max(shares):.1%} of the window")
    for words, errors in (
        ("from usage", [row.error for row in rows if row.anchor is not None]),
        ("by estimate alone", [row.estimate_error for row in rows]),
    ):
        known = [abs(error) for error in errors if error is not None]
        if known:
            parts.append(f"{words} {sum(known) / len(known):.1%} off on average")
    return "; ".join(parts)
