"""The command `refold export`."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from refold_protocol.errors import ConfigError
from refold_protocol.ids import SessionId
from refold_server.cli.command_line import add_after, add_json, add_store, seq, unicode_text
from refold_server.cli.exit_codes import COMPLETED, INTERNAL, STORE_CODES
from refold_server.cli.formatting import printable
from refold_server.cli.terminal import OutputStream, show_progress, standard_error, standard_output

if TYPE_CHECKING:
    from refold_storage.interface import Progress

SUMMARY = "write a session as JSON Lines"
DESCRIPTION = """Write a session as JSON Lines: the first line is the record of the session, each other one an event, exactly as
it is stored. Works while another process writes the session. A damaged log is written up to the damage.

With --after or --follow the lines are those of events alone, for a program that has the others: nothing to import."""
EXIT_CODES = STORE_CODES | {INTERNAL: "the session is damaged, and was exported up to there; or internal error, or output lost"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("session", metavar="SESSION", type=unicode_text, help="the id of a session")
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="where to; it appears whole or not at all (default: standard output)"
    )
    parser.add_argument("--at", metavar="SEQ", type=seq, help="the last event to export (default: the last there is)")
    add_after(parser)
    add_json(parser, "print what was written as one JSON object; needs --output")
    add_store(parser)


async def run(options: argparse.Namespace) -> int:
    """Export a session."""
    from refold_server.cli.command_context import open_context, read_config
    from refold_server.sessions.session_views import examining
    from refold_storage.interface import no_progress
    from refold_storage.session_file import export_lines, plan_export

    if options.json and options.output in (None, "-"):
        raise ConfigError("--json", "needs --output: without it the export itself goes to standard output")
    if options.after is not None or options.follow:
        return await _export_rest(options)
    out, err = standard_output(), standard_error()
    async with (
        open_context(read_config(options), plugins=False) as context,
        examining(context.sessions, SessionId(options.session)) as handle,
    ):
        with show_progress(err, handle.tail + 1) as progress:
            export = plan_export(handle, options.at, progress or no_progress)
        with _open_sink(options.output, out) as write, _progress(err, out, options, export.record.tail + 1) as progress:
            for lines in export_lines(handle, export, progress):
                write(lines)
    tail = export.record.tail
    if options.json:
        out.put_json({"session": export.record.id, "events": tail + 1, "damage": export.damage})
        out.flush()
    if export.damage is None:
        return COMPLETED
    err.line(
        f"{err.style.red('refold: session.corrupt')}: only the events 0 to {tail} were exported; behind them the log is "
        f"damaged: {printable(export.damage)}"
    )
    return INTERNAL


async def _export_rest(options: argparse.Namespace) -> int:
    """Write the events behind a place, and those that come."""
    from refold_server.cli.command_context import open_context, read_config
    from refold_server.cli.stored_lines import stored_lines
    from refold_server.sessions.session_views import reading

    if options.at is not None or (options.follow and options.output not in (None, "-")):
        name = "--at" if options.at is not None else "--output"
        raise ConfigError(name, "does not go with " + ("--follow" if options.follow else "--after"))
    out, events = standard_output(), 0
    after = -1 if options.after is None else options.after
    async with (
        open_context(read_config(options), plugins=False) as context,
        reading(context.sessions, SessionId(options.session)) as (handle, _),
    ):
        with _open_sink(options.output, out) as write:
            async for lines in stored_lines(context.sessions, handle, after, follow=options.follow):
                events += len(lines)
                write(b"".join(line + b"\n" for line in lines))
                if options.output in (None, "-"):
                    out.flush()
    if options.json:
        out.put_json({"session": options.session, "events": events, "damage": None})
        out.flush()
    return COMPLETED


@contextmanager
def _progress(err: OutputStream, out: OutputStream, options: argparse.Namespace, events: int) -> Generator[Progress]:
    """Give what shows how far the writing is, where that does not get between the lines."""
    from refold_storage.interface import no_progress

    if options.output in (None, "-") and out.terminal:
        yield no_progress
        return
    with show_progress(err, events) as progress:
        yield progress or no_progress


@contextmanager
def _open_sink(output: str | None, out: OutputStream) -> Generator[Callable[[bytes], object]]:
    """Give what takes the lines. Raises ConfigError for a file that cannot be written."""
    if output in (None, "-"):
        yield out.put_bytes
        out.flush()
        return
    path = Path(output or "").resolve()
    try:
        if path.exists() and not path.is_file():  # a device or a pipe: nothing can replace it
            with path.open("wb") as file:
                yield file.write
        else:
            with _atomic_file(path) as write:
                yield write
    except OSError as error:
        raise ConfigError("--output", f"{output} cannot be written: {error.strerror or error}") from error


@contextmanager
def _atomic_file(path: Path) -> Generator[Callable[[bytes], object]]:
    """Write a file beside `path` and rename it to `path` when it is whole and on the disk; readable for its owner only."""
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name[:100]}.", suffix=".part", dir=path.parent)
    part = Path(name)
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123 - it is open already
            yield file.write
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
