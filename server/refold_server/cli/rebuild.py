"""Owns `refold rebuild`: the exact body of a request, from the log alone."""

from __future__ import annotations

import argparse
import sys

import anyio

from refold_protocol.ids import SessionId
from refold_server.checks.offline import rebuilt_request
from refold_server.cli.exits import COMPLETED, INTERNAL
from refold_server.cli.opened import opened, read_config
from refold_server.sessions.reading import reading


def command(options: argparse.Namespace) -> int:
    """Print the body, and nothing else, on standard output."""
    return anyio.run(_command, options)


async def _command(options: argparse.Namespace) -> int:
    turn, step = options.place
    async with (
        opened(read_config(options)) as around,
        reading(around.sessions, SessionId(options.session)) as (handle, _),
    ):
        rebuilt = await rebuilt_request(handle, turn, step)
    sys.stdout.buffer.write(rebuilt.body)
    sys.stdout.buffer.flush()
    if rebuilt.verdict == "equal":
        return COMPLETED
    recorded = rebuilt.recorded
    if rebuilt.verdict == "unshipped":
        sys.stderr.write(
            f"refold: it was sent by {recorded.encoder.name} {recorded.encoder.version}, which this release does not have; "
            "the request is the same, its bytes may differ\n"
        )
        return COMPLETED
    sys.stderr.write(f"refold: digest.mismatch: the log says {recorded.sha256} was sent; this is {rebuilt.sha256}\n")
    return INTERNAL
