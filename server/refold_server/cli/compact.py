"""Owns `refold compact`: the history of a session is summed up for the model, now."""

from __future__ import annotations

import argparse
import sys
from functools import partial

import msgspec
from msgspec import Struct

from refold_protocol.ids import SessionId
from refold_server.cli.exits import COMPLETED
from refold_server.cli.interrupts import Interrupts
from refold_server.cli.opened import opened, read_config
from refold_server.cli.screen import Screen
from refold_server.sessions.compacting import compact_session


class Told(Struct, frozen=True, rename="camel"):
    """What --json prints: the session, and what session/compact gives."""

    session: SessionId
    seq: int
    tokens: int
    shadowed_tokens: int


def command(options: argparse.Namespace) -> int:
    """Compact a session's history; a signal stops that and changes nothing."""
    interrupts = Interrupts()
    with interrupts.installed():
        return interrupts.run(partial(_command, options))


async def _command(options: argparse.Namespace) -> int:
    out = Screen(sys.stdout)
    async with opened(read_config(options), turns=True) as around:
        session = await around.sessions.open(SessionId(options.session))
        landed = await compact_session(session, options.instructions)
    if options.json:
        told = Told(session.id, landed.seq, landed.tokens, landed.shadowed)
        out.put_bytes(msgspec.json.encode(told) + b"\n")
    else:
        out.line(f"event {landed.seq} stands for the history: about {landed.tokens:,} tokens in place of {landed.shadowed:,}")
    out.flush()
    return COMPLETED
