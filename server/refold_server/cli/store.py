"""Owns `refold store`: the store as a whole is compacted, or what its lists show is counted anew."""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from refold_protocol.errors import SessionAlreadyOwnedError
from refold_server.cli.exits import COMPLETED, INTERNAL
from refold_server.cli.interrupts import run_reading
from refold_server.cli.opened import opened, read_config
from refold_server.cli.people import printable
from refold_server.cli.screen import Screen
from refold_storage.compact import compact_store
from refold_storage.format import DATA_FILE
from refold_storage.opening import COPY_FILE

LOOK_SECONDS: Final = 0.2
"""How often a person is shown how far a compaction is."""


def command(options: argparse.Namespace) -> int:
    """Do what is wanted with the store."""
    return run_reading(partial(_compact if options.work == "compact" else _rebuild, options))


async def _compact(options: argparse.Namespace) -> int:
    out, aside = Screen(sys.stdout), Screen(sys.stderr, vital=False)
    path = Path(read_config(options).store.path)
    with _copy_shown(aside, path):
        done = compact_store(path)
    before, after = _size(done.before_bytes), _size(done.after_bytes)
    out.line(f"{before} before, {after} now ({path})")
    for number, what in (
        (done.leases, "lock files of sessions that are gone"),
        (done.leftovers, "leftovers of broken imports"),
    ):
        if number:
            out.line(f"{number} {what} removed")
    out.flush()
    return COMPLETED


async def _rebuild(options: argparse.Namespace) -> int:
    out, aside = Screen(sys.stdout), Screen(sys.stderr, vital=False)

    def told(done: int, whole: int) -> None:
        if aside.terminal:
            aside.put(f"\r{done} of {whole} sessions", now=True)

    async with opened(read_config(options), plugins=False) as around:
        done = await around.store.rebuild_catalogue(told)
    if aside.terminal:
        aside.put("\r\x1b[K", now=True)
    out.line(f"counted: {done.sessions} sessions; corrected: {done.changed} of them, {done.misplaced} places in the list")
    for error in done.skipped:
        out.line(f"passed over: {printable(error.message)}")
    out.flush()
    return INTERNAL if any(not isinstance(error, SessionAlreadyOwnedError) for error in done.skipped) else COMPLETED


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


def _size(count: int) -> str:
    """Give a number of bytes for a person."""
    return f"{count / 1024:,.0f} KiB" if count < 1024 * 1024 else f"{count / 1024 / 1024:,.1f} MiB"
