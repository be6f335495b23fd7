"""Owns `refold import`: a session read from a file that `refold export` wrote, whole or not at all."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final

import msgspec
from msgspec import Struct

from refold_protocol.errors import ConfigError, DigestMismatchError, SessionAlreadyExistsError, SessionCorruptionError
from refold_protocol.ids import SessionId
from refold_server.cli.exits import COMPLETED, INTERNAL
from refold_server.cli.failures import tell_failure
from refold_server.cli.interrupts import Interrupts, run_reading
from refold_server.cli.opened import opened, read_config
from refold_server.cli.people import one_line
from refold_server.cli.screen import Screen
from refold_server.cli.verify import progress
from refold_server.clock import epoch_ms, new_session_id
from refold_server.sessions.unasked import Unasked, unasked
from refold_storage.importing import Incoming
from refold_storage.interface import no_progress

SHOWN_CHARACTERS: Final = 200
"""How much is shown of what a file says."""

BLOCK_BYTES: Final = 256 * 1024
"""What is read of the file at a time."""


class Told(Struct, frozen=True):
    """What --json prints: the session, its folder, how many events it has, and what runs in it without a question, as the file
    says: its own permission mode (None: it has none) and the tools that were allowed for it."""

    session: SessionId
    cwd: str
    events: int
    permissions: str | None
    grants: tuple[str, ...]


def command(options: argparse.Namespace) -> int:
    """Import a session and print its id. A signal takes back what was read of a file. It may come while a pipe has nothing to
    read yet, which no event loop can wait for here: then what is on disk stays, unseen, until the store is compacted."""
    if not os.path.isfile(options.file):  # noqa: PTH113 - a name may be any text
        return run_reading(partial(_command, options))
    interrupts = Interrupts()
    with interrupts.installed():
        return interrupts.run(partial(_command, options))


async def _command(options: argparse.Namespace) -> int:
    out, aside = Screen(sys.stdout), Screen(sys.stderr, vital=False)
    config = read_config(options)
    with _source(options.file) as file:
        try:
            incoming = Incoming(_blocks(file))
            renamed = (new_session_id(), epoch_ms()) if options.new_id else None
            async with opened(config, create=True, plugins=False) as around:
                with progress(aside, incoming.record.tail + 1) as told:
                    record = await incoming.land(around.store, renamed=renamed, progress=told or no_progress)
                if not options.json:
                    out.line(record.id)
                    out.flush()
                found = await unasked(around.store, record.id)
                if options.json:
                    told_all = Told(record.id, record.cwd, record.tail + 1, found.mode, found.tools)
                    out.put_bytes(msgspec.json.encode(told_all) + b"\n")
                    out.flush()
                _tell_unasked(aside, record.cwd, found)
        except SessionAlreadyExistsError as error:
            raise SessionAlreadyExistsError(f"{error.message}; --new-id imports it under another one") from None
        except (SessionCorruptionError, DigestMismatchError) as error:  # the file is what is wrong, and nothing was done
            tell_failure(error)
            return INTERNAL
    return COMPLETED


def _tell_unasked(aside: Screen, folder: str, found: Unasked) -> None:
    """Say what runs without a question: whoever wrote the file allowed it, and not necessarily who reads it."""
    everything = found.mode == "allow"
    if everything or found.tools:
        what = "every tool" if everything else one_line(", ".join(found.tools), SHOWN_CHARACTERS)
        aside.line(
            f"refold: note: as the file says, {what} may run in this session without a question, in "
            f"{one_line(folder, SHOWN_CHARACTERS)}; `refold run --session ID --permissions deny PROMPT` ends that"
        )


@contextmanager
def _source(name: str) -> Generator[BinaryIO]:
    """Give the file, or standard input for `-`. Raises ConfigError for one that cannot be read."""
    if name == "-":
        yield sys.stdin.buffer
        return
    try:
        with Path(name).open("rb") as file:
            yield file
    except OSError as error:
        raise ConfigError("FILE", f"{name} cannot be read: {error.strerror or error}") from error


def _blocks(file: BinaryIO) -> Iterator[bytes]:
    while block := file.read(BLOCK_BYTES):
        yield block
