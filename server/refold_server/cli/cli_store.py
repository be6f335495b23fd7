"""The command `refold store`."""

from __future__ import annotations

import argparse
import os
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from refold_protocol.errors import SessionAlreadyOwnedError
from refold_server.cli.command_line import add_json, add_store
from refold_server.cli.exit_codes import COMPLETED, INTERNAL, STORE_CODES
from refold_server.cli.formatting import printable
from refold_server.cli.terminal import CLEAR_LINE, OutputStream, standard_error, standard_output

if TYPE_CHECKING:
    from refold_storage.store_compaction import Compacted

SUMMARY = "compact the store, count anew what lists show, or accept an old copy"
DESCRIPTION = """Take care of the store as a whole. `compact` writes its file anew without what is free, so that it shrinks and
what was deleted is gone from it; it needs as much free space as the store holds, and nobody may have the store open.
`rebuild` counts titles, totals and last activities anew from the logs. `accept` goes on with an old copy of the store that was
restored on purpose."""
EXIT_CODES = STORE_CODES | {INTERNAL: "a session could not be counted; or an internal error"}

PROGRESS_SECONDS: Final = 0.2
"""How often a person is shown how far a compaction is."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "work",
        metavar="WORK",
        choices=("compact", "rebuild", "accept"),
        help="compact: give free space back to the file system and let deleted bytes vanish, with nobody using the store; "
        "rebuild: count anew what lists of sessions show; accept: go on with an old copy that was restored on purpose",
    )
    add_json(parser)
    add_store(parser)


async def run(options: argparse.Namespace) -> int:
    """Compact the store, count its lists anew, or accept it as it is."""
    if options.work == "rebuild":
        return await _rebuild(options)
    return _compact(options) if options.work == "compact" else _accept(options)


def _accept(options: argparse.Namespace) -> int:
    from refold_server.cli.command_context import read_config
    from refold_storage.lmdb_store import accept_store

    out, path = standard_output(), Path(read_config(options).store.path)
    accept_store(path)
    if options.json:
        out.put_json({"path": _path_text(path)})
    else:
        out.line(f"accepted as it is: {printable(_path_text(path))}")
    out.flush()
    return COMPLETED


def _compact(options: argparse.Namespace) -> int:
    from refold_server.cli.command_context import read_config
    from refold_storage.store_compaction import compact_store

    out, err = standard_output(), standard_error()
    path = Path(read_config(options).store.path)
    with _show_copy(err, path):
        done = compact_store(path)
    if options.json:
        sizes = {"beforeBytes": done.before_bytes, "afterBytes": done.after_bytes}
        removed = {"leases": done.leases, "leftovers": done.leftovers}
        out.put_json({"path": _path_text(path)} | sizes | removed)
    else:
        for line in _size_lines(path, done):
            out.line(line)
    out.flush()
    return COMPLETED


async def _rebuild(options: argparse.Namespace) -> int:
    from refold_server.cli.command_context import open_context, read_config

    out, err = standard_output(), standard_error()

    def progress(done: int, whole: int) -> None:
        if err.terminal:
            err.put(f"\r{done} of {whole} sessions", now=True)

    async with open_context(read_config(options), plugins=False) as context:
        done = await context.store.rebuild_catalogue(progress)
    if err.terminal:
        err.put(CLEAR_LINE, now=True)
    if options.json:
        skipped = [{"kind": error.error_kind, "message": error.message} for error in done.skipped]
        counts = {"sessions": done.sessions, "changed": done.changed, "misplaced": done.misplaced}
        out.put_json(counts | {"skipped": skipped})
    else:
        out.line(f"counted: {done.sessions} sessions; corrected: {done.changed} of them, {done.misplaced} places in the list")
        for error in done.skipped:
            out.line(f"passed over: {printable(error.message)}")
    out.flush()
    return INTERNAL if any(not isinstance(error, SessionAlreadyOwnedError) for error in done.skipped) else COMPLETED


def _size_lines(path: Path, done: Compacted) -> Iterator[str]:
    before, after = _size(done.before_bytes), _size(done.after_bytes)
    yield f"{before} before, {after} now ({path})"
    for number, what in (
        (done.leases, "lock files of sessions that are gone"),
        (done.leftovers, "leftovers of broken imports"),
    ):
        if number:
            yield f"{number} {what} removed"


@contextmanager
def _show_copy(err: OutputStream, store: Path) -> Generator[None]:
    """Within the block, show on a terminal how much of the store is copied, by the size of the copy."""
    if not err.terminal:
        yield
        return
    from refold_storage.store_format import DATA_FILE
    from refold_storage.store_opening import COPY_FILE

    over = threading.Event()

    def show() -> None:
        while not over.wait(PROGRESS_SECONDS):
            try:
                copied, whole = (store / COPY_FILE).stat().st_size, (store / DATA_FILE).stat().st_size
            except OSError:  # not begun yet, or it has taken its place
                continue
            err.put(f"\r{_size(copied)} of at most {_size(whole)} copied", now=True)

    thread = threading.Thread(target=show, name="refold progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        err.put(CLEAR_LINE, now=True)


def _path_text(path: Path) -> str:
    return os.fsencode(path).decode("utf-8", "replace")


def _size(count: int) -> str:
    """Give a number of bytes for a person."""
    return f"{count / 1024:,.0f} KiB" if count < 1024 * 1024 else f"{count / 1024 / 1024:,.1f} MiB"
