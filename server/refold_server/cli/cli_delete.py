"""The command `refold delete`."""

from __future__ import annotations

import argparse
import sys
import termios
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from refold_protocol.errors import RefoldError
from refold_protocol.ids import SessionId
from refold_server.cli.command_line import add_json, add_sessions, add_store
from refold_server.cli.exit_codes import (
    COMPLETED,
    INTERRUPTED,
    MEANINGS,
    STORE_CODES,
    USAGE,
    exit_code_of_error,
    report_error,
)
from refold_server.cli.formatting import one_line
from refold_server.cli.terminal import OutputStream, standard_error, standard_output

if TYPE_CHECKING:
    from refold_storage.interface import Store

SUMMARY = "delete sessions for good"
DESCRIPTION = """Delete sessions for good, after asking on the terminal. Forks of them keep what they inherited. A session that
another process has open for writing is not deleted. Their bytes stay in the store's file until they are overwritten, or
until `refold store compact`."""
EXIT_CODES = STORE_CODES | {
    INTERRUPTED: f"whoever was asked did not say yes, and nothing was deleted; or {MEANINGS[INTERRUPTED]}"
}

TITLE_CHARACTERS: Final = 60
"""How much of a title is shown of a session that is to be deleted."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_sessions(parser)
    parser.add_argument("--yes", action="store_true", help="ask nobody; needed where there is no terminal")
    add_json(parser)
    add_store(parser)


async def run(options: argparse.Namespace) -> int:
    """Delete sessions, once somebody at the terminal or --yes agrees."""
    from refold_server.cli.command_context import open_context, read_config

    out, err = standard_output(), standard_error()
    async with open_context(read_config(options), plugins=False) as context:
        names = list(dict.fromkeys(map(context.session, options.sessions)))
        titles = [_title_line(context.store, name) for name in names]  # all of them are there, or nothing happens
        if not options.yes and (refusal := _refusal(err, titles)) is not None:
            return refusal
        code, gone = COMPLETED, list[SessionId]()
        for name in names:
            try:
                await context.store.delete(name)
            except RefoldError as error:  # one that cannot go must not keep the others
                code = code or exit_code_of_error(error)
                report_error(error)
            else:
                gone.append(name)
                if not options.json:
                    out.line(f"deleted {name}")
    if options.json:
        out.put_json({"deleted": gone})
    out.flush()
    return code


def _title_line(store: Store, session: SessionId) -> str:
    """Give a session with its title. Raises SessionNotFoundError."""
    title = store.get(session).summary.title
    return session if title is None else f"{session}  {one_line(title, TITLE_CHARACTERS)}"


def _refusal(err: OutputStream, titles: Sequence[str]) -> int | None:
    """Ask whether these sessions may go. Gives the exit code where nobody said yes, None for a yes."""
    if not (err.terminal and sys.stdin.isatty()):
        err.line("refold: nobody can be asked here; --yes deletes without asking")
        return USAGE
    for title in titles:
        err.line(f"  {title}")
    many = "this session" if len(titles) == 1 else f"these {len(titles)} sessions"
    with suppress(termios.error):  # what was typed before the question is no answer to it; a terminal that is gone gives none
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
    err.put(f"Delete {many} for good? y: yes, N: no > ", now=True)
    answer = sys.stdin.readline()
    if answer.strip().lower() in ("y", "yes"):
        return None
    if not answer:  # the person ended their input, and not the line
        err.line()
    err.line("Nothing was deleted.")
    return INTERRUPTED
