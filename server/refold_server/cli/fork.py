"""Owns `refold fork`: a session that begins with another's events."""

from __future__ import annotations

import argparse
import sys
from functools import partial

import msgspec
from msgspec import Struct

from refold_protocol.ids import SessionId
from refold_protocol.rpc.results import ForkOrigin
from refold_protocol.session.messages import Source
from refold_server.cli.exits import COMPLETED
from refold_server.cli.interrupts import run_reading
from refold_server.cli.opened import opened, read_config
from refold_server.cli.screen import Screen
from refold_server.sessions.forking import fork_session
from refold_server.sessions.listing import origin_of


class Told(Struct, frozen=True):
    """What --json prints: the fork and the seq of its last event, as session/fork gives them, and where it comes from."""

    session: SessionId
    tail: int
    parent: ForkOrigin | None


def command(options: argparse.Namespace) -> int:
    """Fork a session and print the fork's id."""
    return run_reading(partial(_command, options))


async def _command(options: argparse.Namespace) -> int:
    out = Screen(sys.stdout)
    async with opened(read_config(options), plugins=False) as around:
        made = await fork_session(around.sessions, SessionId(options.session), options.at, options.title, Source("cli"))
        parent = origin_of(around.store.get(made.session))
    if options.json:
        out.put_bytes(msgspec.json.encode(Told(made.session, made.tail, parent)) + b"\n")
    else:
        out.line(made.session)
    out.flush()
    return COMPLETED
