"""Owns `refold rebuild`: the exact body of a request, from the log alone."""

from __future__ import annotations

import argparse
import sys
from functools import partial

from refold_protocol.ids import SessionId
from refold_server.checks.offline import Rebuilt, rebuilt_request, rebuilt_summary
from refold_server.cli.exits import COMPLETED, INTERNAL
from refold_server.cli.interrupts import run_reading
from refold_server.cli.opened import opened, read_config
from refold_server.cli.screen import Screen
from refold_server.sessions.reading import reading


def command(options: argparse.Namespace) -> int:
    """Print the body, and nothing else, on standard output."""
    return run_reading(partial(_command, options))


async def _command(options: argparse.Namespace) -> int:
    place: tuple[int, int] | int = options.place
    async with (
        opened(read_config(options)) as around,
        reading(around.sessions, SessionId(options.session)) as (handle, _),
    ):
        rebuilt = await (rebuilt_summary(handle, place) if isinstance(place, int) else rebuilt_request(handle, *place))
    out = Screen(sys.stdout)
    out.put_bytes(rebuilt.body)
    out.flush()
    return _judge(rebuilt, Screen(sys.stderr, vital=False))


def _judge(rebuilt: Rebuilt, aside: Screen) -> int:
    """Tell what is to be said about the body beside it, and give the exit code."""
    recorded = rebuilt.recorded
    if rebuilt.verdict == "equal":
        return COMPLETED
    if rebuilt.verdict == "unshipped":
        aside.line(
            f"refold: it was sent by {recorded.encoder.name} {recorded.encoder.version}, which this release does not have; "
            "the request is the same, its bytes may differ"
        )
        return COMPLETED
    red = aside.look.red("refold: digest.mismatch")
    aside.line(f"{red}: the log says that a body with SHA-256 {recorded.sha256} was sent; this one has {rebuilt.sha256}")
    return INTERNAL
