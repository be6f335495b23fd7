"""Owns `refold store`: the store as a whole is compacted, what its lists show is counted anew, or an old copy is accepted."""

from __future__ import annotations

import argparse
import os
import sys
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from refold_protocol.errors import SessionAlreadyOwnedError
from refold_server.cli.exits import COMPLETED, INTERNAL
from refold_server.cli.interrupts import run_reading
from refold_server.cli.opened import opened, read_config
from refold_server.cli.people import printable
from refold_server.cli.screen import Screen
from refold_storage.compact import Compacted, compact_store
from refold_storage.format import DATA_FILE
from refold_storage.lmdb_store import accept_store
from refold_storage.opening import COPY_FILE
from refold_storage.session_record import Recount

LOOK_SECONDS: Final = 0.2
"""How often a person is shown how far a compaction is."""


class Shrunk(Struct, frozen=True, rename="camel"):
    """What --json prints of a compaction: sizes of the data file in bytes; lock files of sessions that are gone and leftovers
    of broken imports that were removed."""

    path: str
    before_bytes: int
    after_bytes: int
    leases: int
    leftovers: int


class Accepted(Struct, frozen=True):
    """What --json prints of a store that was accepted as it is."""

    path: str


class Skipped(Struct, frozen=True):
    """A session that could not be counted, by the error that says which and why."""

    kind: str
    message: str


class Counted(Struct, frozen=True):
    """What --json prints of a count: sessions that were counted, those that were corrected, places in the list that were, and
    what was passed over."""

    sessions: int
    changed: int
    misplaced: int
    skipped: tuple[Skipped, ...]


def command(options: argparse.Namespace) -> int:
    """Do what is wanted with the store."""
    works = {"compact": _compact, "rebuild": _rebuild, "accept": _accept}
    return run_reading(partial(works[options.work], options))


async def _accept(options: argparse.Namespace) -> int:
    out, path = Screen(sys.stdout), Path(read_config(options).store.path)
    accept_store(path)
    if options.json:
        out.put_bytes(msgspec.json.encode(Accepted(_text(path))) + b"\n")
    else:
        out.line(f"accepted as it is: {path}")
    out.flush()
    return COMPLETED


async def _compact(options: argparse.Namespace) -> int:
    out, aside = Screen(sys.stdout), Screen(sys.stderr, vital=False)
    path = Path(read_config(options).store.path)
    with _copy_shown(aside, path):
        done = compact_store(path)
    if options.json:
        told = Shrunk(_text(path), done.before_bytes, done.after_bytes, done.leases, done.leftovers)
        out.put_bytes(msgspec.json.encode(told) + b"\n")
    else:
        for line in _shrunk_lines(path, done):
            out.line(line)
    out.flush()
    return COMPLETED


def _shrunk_lines(path: Path, done: Compacted) -> Iterator[str]:
    before, after = _size(done.before_bytes), _size(done.after_bytes)
    yield f"{before} before, {after} now ({path})"
    for number, what in (
        (done.leases, "lock files of sessions that are gone"),
        (done.leftovers, "leftovers of broken imports"),
    ):
        if number:
            yield f"{number} {what} removed"


async def _rebuild(options: argparse.Namespace) -> int:
    out, aside = Screen(sys.stdout), Screen(sys.stderr, vital=False)

    def told(done: int, whole: int) -> None:
        if aside.terminal:
            aside.put(f"\r{done} of {whole} sessions", now=True)

    async with opened(read_config(options), plugins=False) as around:
        done = await around.store.rebuild_catalogue(told)
    if aside.terminal:
        aside.put("\r\x1b[K", now=True)
    if options.json:
        out.put_bytes(msgspec.json.encode(_counted(done)) + b"\n")
    else:
        out.line(f"counted: {done.sessions} sessions; corrected: {done.changed} of them, {done.misplaced} places in the list")
        for error in done.skipped:
            out.line(f"passed over: {printable(error.message)}")
    out.flush()
    return INTERNAL if any(not isinstance(error, SessionAlreadyOwnedError) for error in done.skipped) else COMPLETED


def _counted(done: Recount) -> Counted:
    skipped = tuple(Skipped(error.error_kind, error.message) for error in done.skipped)
    return Counted(done.sessions, done.changed, done.misplaced, skipped)


@contextmanager
def _copy_shown(aside: Screen, store: Path) -> Generator[None]:
    """Within the block, show on a terminal how much of the store is copied, by the size of the copy."""
    if not aside.terminal:
        yield
        return
    over = threading.Event()

    def look() -> None:
        while not over.wait(LOOK_SECONDS):
            try:
                copied, whole = (store / COPY_FILE).stat().st_size, (store / DATA_FILE).stat().st_size
            except OSError:  # not begun yet, or it has taken its place
                continue
            aside.put(f"\r{_size(copied)} of at most {_size(whole)} copied", now=True)

    thread = threading.Thread(target=look, name="refold progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        aside.put("\r\x1b[K", now=True)


def _text(path: Path) -> str:
    return os.fsencode(path).decode("utf-8", "replace")


def _size(count: int) -> str:
    """Give a number of bytes for a person."""
    return f"{count / 1024:,.0f} KiB" if count < 1024 * 1024 else f"{count / 1024 / 1024:,.1f} MiB"
