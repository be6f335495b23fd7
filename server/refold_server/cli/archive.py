"""Owns `refold archive`: sessions that lists leave out, and the way back."""

from __future__ import annotations

import argparse
import sys
from functools import partial

import msgspec
from msgspec import Struct

from refold_protocol.ids import SessionId
from refold_server.cli.exits import COMPLETED
from refold_server.cli.interrupts import run_reading
from refold_server.cli.opened import opened, read_config
from refold_server.cli.screen import Screen


class Told(Struct, frozen=True):
    """What --json prints: the sessions, in the order in which they were named, and whether they are archived now."""

    sessions: tuple[SessionId, ...]
    archived: bool


def command(options: argparse.Namespace) -> int:
    """Archive sessions, or bring them back."""
    return run_reading(partial(_command, options))


async def _command(options: argparse.Namespace) -> int:
    out = Screen(sys.stdout)
    async with opened(read_config(options), plugins=False) as around:
        names = list(dict.fromkeys(map(SessionId, options.sessions)))
        for name in names:
            around.store.get(name)  # all of them, or none
        for name in names:
            await around.store.set_archived(name, archived=not options.undo)
            if not options.json:
                out.line(f"{'back' if options.undo else 'archived'} {name}")
    if options.json:
        out.put_bytes(msgspec.json.encode(Told(tuple(names), not options.undo)) + b"\n")
    out.flush()
    return COMPLETED
