"""Owns `refold fork`: a session that begins with another's events."""

from __future__ import annotations

import argparse
import sys
from functools import partial

from refold_protocol.ids import SessionId
from refold_protocol.session.messages import Source
from refold_server.cli.exits import COMPLETED
from refold_server.cli.interrupts import run_reading
from refold_server.cli.opened import opened, read_config
from refold_server.cli.screen import Screen
from refold_server.sessions.forking import fork_session


def command(options: argparse.Namespace) -> int:
    """Fork a session and print the fork's id."""
    return run_reading(partial(_command, options))


async def _command(options: argparse.Namespace) -> int:
    out = Screen(sys.stdout)
    async with opened(read_config(options), plugins=False) as around:
        made = await fork_session(around.sessions, SessionId(options.session), options.at, options.title, Source("cli"))
    out.line(made.session)
    out.flush()
    return COMPLETED
