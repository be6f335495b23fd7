"""Owns `refold delete`: which sessions are meant is shown, somebody says yes, and they are gone."""

from __future__ import annotations

import argparse
import sys
import termios
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Final

import msgspec
from msgspec import Struct

from refold_protocol.errors import RefoldError
from refold_protocol.ids import SessionId
from refold_server.cli.exits import COMPLETED, INTERRUPTED, USAGE, exit_of_error
from refold_server.cli.failures import tell_failure
from refold_server.cli.interrupts import run_reading
from refold_server.cli.opened import opened, read_config
from refold_server.cli.people import one_line
from refold_server.cli.screen import Screen
from refold_storage.interface import Store

TITLE_CHARACTERS: Final = 60
"""How much of a title is shown of a session that is to go."""


class Told(Struct, frozen=True):
    """What --json prints: the sessions that are gone, in the order in which they were named."""

    deleted: tuple[SessionId, ...]


def command(options: argparse.Namespace) -> int:
    """Delete sessions."""
    return run_reading(partial(_command, options))


async def _command(options: argparse.Namespace) -> int:
    out, aside = Screen(sys.stdout), Screen(sys.stderr, vital=False)
    async with opened(read_config(options), plugins=False) as around:
        names = list(dict.fromkeys(map(SessionId, options.sessions)))
        titles = [_called(around.store, name) for name in names]  # all of them are there, or nothing happens
        if not options.yes and (refusal := _refused(aside, titles)) is not None:
            return refusal
        code, gone = COMPLETED, list[SessionId]()
        for name in names:
            try:
                await around.store.delete(name)
            except RefoldError as error:  # one that cannot go must not keep the others
                code = code or exit_of_error(error)
                tell_failure(error)
            else:
                gone.append(name)
                if not options.json:
                    out.line(f"deleted {name}")
    if options.json:
        out.put_bytes(msgspec.json.encode(Told(tuple(gone))) + b"\n")
    out.flush()
    return code


def _called(store: Store, session: SessionId) -> str:
    """Give what a person calls a session. Raises SessionNotFoundError."""
    title = store.get(session).summary.title
    return session if title is None else f"{session}  {one_line(title, TITLE_CHARACTERS)}"


def _refused(aside: Screen, titles: Sequence[str]) -> int | None:
    """Ask whether these sessions may go. Gives the exit code where nobody said so, None for a yes."""
    if not (aside.terminal and sys.stdin.isatty()):
        aside.line("refold: nobody can be asked here; --yes deletes without asking")
        return USAGE
    for title in titles:
        aside.line(f"  {title}")
    many = "this session" if len(titles) == 1 else f"these {len(titles)} sessions"
    with suppress(termios.error):  # what was typed before the question is no answer to it; a terminal that is gone gives none
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
    aside.put(f"Delete {many} for good? y: yes, N: no > ", now=True)
    answer = sys.stdin.readline()
    if answer.strip().lower() in ("y", "yes"):
        return None
    if not answer:  # the person ended their input, and not the line
        aside.line()
    aside.line("Nothing was deleted.")
    return INTERRUPTED
