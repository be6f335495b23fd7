"""The command `refold meter`."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from refold_protocol.ids import SessionId
from refold_server.cli.command_line import add_session, add_store, unicode_text
from refold_server.cli.exit_codes import COMPLETED, STORE_CODES
from refold_server.cli.formatting import one_line
from refold_server.cli.terminal import Style, show_progress, standard_error, standard_output
from refold_server.cli.text_tables import aligned, plot_lines

if TYPE_CHECKING:
    from refold_protocol.session.meter import PressureRow

SUMMARY = "show how full the model's window was at each request"
DESCRIPTION = """Show for each request how many tokens its prompt was expected to take just before it was sent, and of how large
a window. "usage at SEQ": the provider counted an earlier request of the same model and header, whose reply is event SEQ, and
only what came since is estimated. "estimate": all of it is, by the number of characters. Beside it stand the estimate of the
whole request, the tokens that the provider reported afterwards, and how far the first figure was off. Windows and densities
are those of the configuration now. Reads the log alone and asks no provider."""
EXIT_CODES = STORE_CODES

_HEADINGS: Final = ("step", "pressure", "window", "from", "estimate", "reported", "error")
_LEFT: Final = (0, 3)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_session(parser)
    parser.add_argument(
        "--model",
        metavar="PROVIDER/MODEL",
        type=unicode_text,
        help="meter every request as if it went to this model (default: to the one that it went to)",
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--json", action="store_true", help="one JSON object a request, one a line")
    how.add_argument("--plot", action="store_true", help="draw the pressure of the requests")
    add_store(parser)


async def run(options: argparse.Namespace) -> int:
    """Show how full the window was at each request."""
    from refold_server.cli.command_context import open_context, read_config
    from refold_server.sessions.session_reports import request_pressures
    from refold_server.sessions.session_views import reading

    out, err = standard_output(), standard_error()
    async with (
        open_context(read_config(options)) as context,
        reading(context.sessions, SessionId(options.session)) as (handle, _),
    ):
        with show_progress(err, handle.tail + 1) as progress:
            metered = await request_pressures(context.shared.meters, handle, options.model, progress)
    rows = metered.rows
    if options.json:
        out.put_json(*rows)
    else:
        for line in plot_lines(rows, shutil.get_terminal_size().columns) if options.plot else table_lines(rows, out.style):
            out.put_bytes(f"{line}\n".encode())
    out.flush()
    for error in metered.unmetered:
        err.line(err.style.dim(one_line(error.message, 400)))
    if not rows:
        err.line(err.style.dim("(no request was sent yet)"))
    return COMPLETED


def table_lines(rows: Sequence[PressureRow], style: Style) -> Iterator[str]:
    """Give a heading, a line for each request, and a summary; nothing for no requests. A model stands where it changes."""
    if not rows:
        return
    heading, *lines = (line.rstrip() for line in aligned([_HEADINGS, *map(_cells, rows)], _LEFT))
    yield style.dim(heading)
    shown = None
    for row, line in zip(rows, lines, strict=True):
        if (row.model, row.metered) != shown:
            shown = (row.model, row.metered)
            yield style.dim(_model_words(row))
        full = row.tokens is not None and row.window is not None and row.tokens > row.window
        yield style.red(line) if full else line
    yield _summary(rows)


def _model_words(row: PressureRow) -> str:
    window = "window unknown" if row.window is None else f"window {row.window:,}"
    name = one_line(row.model, 120)
    return f"{name}, {window}" if row.model == row.metered else f"{name}, metered as {one_line(row.metered, 120)}, {window}"


def _cells(row: PressureRow) -> tuple[str, ...]:
    place = "summary" if row.purpose == "summary" else f"{row.turn}.{row.step}"
    place += f" try {row.attempt}" if row.attempt > 1 else ""
    if row.tokens is None or row.window is None:
        return (place, "?", "?", "-", "?", _count(row.reported), "?")
    source = "estimate" if row.anchor is None else f"usage at {row.anchor}"
    share = f"{row.tokens / row.window:.1%}"
    reported = _count(row.reported) if row.read is None else f"read ≤ {row.read:,}"
    return (place, f"{row.tokens:,}", share, source, _count(row.estimate), reported, _share(row.error))


def _count(number: int | None) -> str:
    return "?" if number is None else f"{number:,}"


def _share(error: float | None) -> str:
    return "?" if error is None else f"{error:+.1%}"


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
