"""The command `refold sessions`."""

from __future__ import annotations

import argparse
import os
import re
import shutil
from typing import TYPE_CHECKING, Final

from refold_server.cli.command_line import add_json, add_store, unicode_text
from refold_server.cli.exit_codes import COMPLETED, STORE_CODES
from refold_server.cli.formatting import printable
from refold_server.cli.terminal import standard_error, standard_output
from refold_server.cli.text_tables import session_lines

if TYPE_CHECKING:
    from refold_server.sessions.session_list import SessionRow
    from refold_server.sessions.session_registry import Sessions

SUMMARY = "list sessions, the latest active first"
DESCRIPTION = """List the sessions that began in the current folder, the latest active first: title, last activity, turns,
model, status and id. A narrow terminal shows fewer columns. A session that another process has open shows as running."""
EXIT_CODES = STORE_CODES

FILE_WIDTH: Final = 160
"""Columns of the table in a file or a pipe."""

_PAGE: Final = 1_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--cwd", metavar="FOLDER", type=unicode_text, help="sessions of this folder (default: the current one)")
    which.add_argument("--all", action="store_true", help="sessions of every folder")
    which.add_argument(
        "--moved",
        action="store_true",
        help="sessions whose folder is not there any more; `refold run --session ID` in its new place goes on with one there",
    )
    parser.add_argument("--text", metavar="TEXT", type=unicode_text, help="only those that say this, in title or prompts")
    parser.add_argument("--archived", action="store_true", help="archived ones too")
    parser.add_argument("--limit", metavar="NUMBER", type=_count, default=20, help="how many at most (default: 20)")
    add_json(parser, "one JSON object a session, one a line")
    add_store(parser)


async def run(options: argparse.Namespace) -> int:
    """List sessions."""
    from refold_server.cli.command_context import open_context, read_config

    out, err = standard_output(), standard_error()
    config = read_config(options)
    folder = _folder(options)
    async with open_context(config, plugins=False) as context:
        rows, more = await _rows(context.sessions, folder, options)
        moved = not rows and folder is not None and await _are_moved(context.sessions)
    if options.json:
        out.put_json(*rows)
    else:
        width = shutil.get_terminal_size().columns if out.terminal else FILE_WIDTH
        for line in session_lines(rows, width, out.style):
            out.line(line)
        out.flush()
        if not rows:
            err.line(err.style.dim(_empty_note(folder, options.text, moved=options.moved)))
            if moved:
                err.line(err.style.dim("(--moved lists sessions whose folder was moved or renamed)"))
        elif more:
            err.line(err.style.dim(f"(there are more; --limit {options.limit * 5} shows some of them)"))
    return COMPLETED


def _count(text: str) -> int:
    if re.fullmatch(r"[1-9]\d{0,8}", text, re.ASCII) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 on")
    return int(text)


def _folder(options: argparse.Namespace) -> str | None:
    """Give the folder whose sessions are wanted, None for all."""
    from refold_server.cli.command_context import current_folder

    if options.all or options.moved:
        return None
    return current_folder() if options.cwd is None else os.path.abspath(options.cwd)  # noqa: PTH100


async def _rows(sessions: Sessions, folder: str | None, options: argparse.Namespace) -> tuple[list[SessionRow], bool]:
    """Give up to as many rows as wanted, and whether there may be more."""
    from refold_server.sessions.session_list import SessionListParams, page_of_sessions, read_cursor

    limit: int = options.limit
    rows: list[SessionRow] = []
    cursor = None
    while True:
        wanted = SessionListParams(min(limit - len(rows), _PAGE), folder, options.text, options.archived, moved=options.moved)
        page = await page_of_sessions(sessions, wanted, cursor)
        rows += page.sessions
        if page.next is None or len(rows) == limit:
            return rows, page.next is not None
        cursor = read_cursor(page.next)


async def _are_moved(sessions: Sessions) -> bool:
    """Tell whether there is a session whose folder is gone."""
    from refold_server.sessions.session_list import SessionListParams, page_of_sessions

    return bool((await page_of_sessions(sessions, SessionListParams(1, moved=True), None)).sessions)


def _empty_note(folder: str | None, text: str | None, *, moved: bool) -> str:
    which = "no sessions" if text is None else f"no sessions with {printable(repr(text))} in their title or prompts"
    if moved:
        return f"({which} whose folder is not there any more)"
    if folder is None:
        return f"({which} in this store)"
    gone = "" if os.path.isdir(folder) else ", and no such folder is there"  # noqa: PTH112 - a name may be any text
    return f"({which} began in {printable(folder)}{gone}; --all lists those of every folder)"
