"""Owns `refold export`: a session as JSON Lines, to standard output or into a file that appears whole or not at all."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import msgspec
from msgspec import Struct

from refold_protocol.errors import ConfigError
from refold_protocol.ids import SessionId
from refold_server.cli.exits import COMPLETED, INTERNAL
from refold_server.cli.interrupts import run_reading
from refold_server.cli.opened import opened, read_config
from refold_server.cli.people import printable
from refold_server.cli.screen import Screen
from refold_server.cli.verify import progress
from refold_server.sessions.reading import examining
from refold_storage.exporting import export_lines, plan_export
from refold_storage.interface import Progress, no_progress


class Told(Struct, frozen=True):
    """What --json prints: the session, how many events the file has, and what is damaged behind them (None: nothing)."""

    session: SessionId
    events: int
    damage: str | None


def command(options: argparse.Namespace) -> int:
    """Export a session."""
    if options.json and options.output in (None, "-"):
        raise ConfigError("--json", "needs --output: without it the export itself goes to standard output")
    return run_reading(partial(_command, options))


async def _command(options: argparse.Namespace) -> int:
    out, aside = Screen(sys.stdout), Screen(sys.stderr, vital=False)
    async with (
        opened(read_config(options), plugins=False) as around,
        examining(around.sessions, SessionId(options.session)) as handle,
    ):
        with progress(aside, handle.tail + 1) as told:
            export = plan_export(handle, options.at, told or no_progress)
        with _sink(options.output, out) as write, _shown(aside, out, options, export.record.tail + 1) as told:
            for lines in export_lines(handle, export, told):
                write(lines)
    tail = export.record.tail
    if options.json:
        out.put_bytes(msgspec.json.encode(Told(export.record.id, tail + 1, export.damage)) + b"\n")
        out.flush()
    if export.damage is None:
        return COMPLETED
    aside.line(
        f"{aside.look.red('refold: session.corrupt')}: only the events 0 to {tail} were exported; behind them the log is "
        f"damaged: {printable(export.damage)}"
    )
    return INTERNAL


@contextmanager
def _shown(aside: Screen, out: Screen, options: argparse.Namespace, events: int) -> Generator[Progress]:
    """Give what shows how far the writing is, where that does not get between the lines."""
    if options.output in (None, "-") and out.terminal:
        yield no_progress
        return
    with progress(aside, events) as told:
        yield told or no_progress


@contextmanager
def _sink(output: str | None, out: Screen) -> Generator[Callable[[bytes], object]]:
    """Give what takes the lines. Raises ConfigError for a file that cannot be written."""
    if output in (None, "-"):
        yield out.put_bytes
        out.flush()
        return
    path = Path(output or "").resolve()
    try:
        if path.exists() and not path.is_file():  # a device or a pipe: there is nothing to put in its place
            with path.open("wb") as file:
                yield file.write
        else:
            with _put_in_place(path) as write:
                yield write
    except OSError as error:
        raise ConfigError("--output", f"{output} cannot be written: {error.strerror or error}") from error


@contextmanager
def _put_in_place(path: Path) -> Generator[Callable[[bytes], object]]:
    """Write a file beside `path` and let it take its place when it is whole and on the disk; readable for its owner only."""
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
