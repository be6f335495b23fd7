"""Owns `refold sessions`: the sessions of the current folder, of another one or of all, the latest active first."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from functools import partial
from typing import Final

import msgspec

from refold_protocol.rpc.listing import SessionRow
from refold_protocol.rpc.params import SessionListParams
from refold_server.cli.exits import COMPLETED
from refold_server.cli.interrupts import run_reading
from refold_server.cli.opened import opened, read_config
from refold_server.cli.people import printable
from refold_server.cli.prompt import current_folder
from refold_server.cli.screen import Screen
from refold_server.cli.table import session_lines
from refold_server.sessions.listing import page_of_sessions, read_cursor
from refold_server.sessions.registry import Sessions

FILE_WIDTH: Final = 160
"""Columns of the table where nobody looks: in a file or a pipe."""

_PAGE: Final = 1_000


def command(options: argparse.Namespace) -> int:
    """List sessions."""
    return run_reading(partial(_command, options))


async def _command(options: argparse.Namespace) -> int:
    out, aside = Screen(sys.stdout), Screen(sys.stderr, vital=False)
    config = read_config(options)
    folder = _folder(options)
    async with opened(config, plugins=False) as around:
        rows, more = await _rows(around.sessions, folder, options)
    if options.json:
        for row in rows:
            out.put_bytes(msgspec.json.encode(row) + b"\n")
    else:
        width = shutil.get_terminal_size().columns if out.terminal else FILE_WIDTH
        for line in session_lines(rows, width, out.look):
            out.line(line)
        out.flush()
        if not rows:
            aside.line(aside.look.dim(_nothing(folder, options.text)))
        elif more:
            aside.line(aside.look.dim(f"(there are more; --limit {options.limit * 5} shows some of them)"))
    return COMPLETED


def _folder(options: argparse.Namespace) -> str | None:
    """Give the folder whose sessions are wanted, None for all. Links in it stay, as sessions are recorded."""
    if options.all:
        return None
    return current_folder() if options.cwd is None else os.path.abspath(options.cwd)  # noqa: PTH100


async def _rows(sessions: Sessions, folder: str | None, options: argparse.Namespace) -> tuple[list[SessionRow], bool]:
    """Give up to as many rows as wanted, and whether there may be more."""
    limit: int = options.limit
    rows: list[SessionRow] = []
    cursor = None
    while True:
        wanted = SessionListParams(min(limit - len(rows), _PAGE), folder, options.text, options.archived)
        page = await page_of_sessions(sessions, wanted, cursor)
        rows += page.sessions
        if page.next is None or len(rows) == limit:
            return rows, page.next is not None
        cursor = read_cursor(page.next)


def _nothing(folder: str | None, text: str | None) -> str:
    which = "no sessions" if text is None else f"no sessions with {printable(repr(text))} in their title or prompts"
    if folder is None:
        return f"({which} in this store)"
    gone = "" if os.path.isdir(folder) else ", and no such folder is there"  # noqa: PTH112 - a name may be any text
    return f"({which} began in {printable(folder)}{gone}; --all lists those of every folder)"
