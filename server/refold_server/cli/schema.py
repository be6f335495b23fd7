"""Owns `refold schema`: the method table for programs in other languages, as JSON Schema or as TypeScript."""

from __future__ import annotations

import argparse
import sys

import msgspec

from refold_protocol.rpc.schema import schema_of
from refold_server.cli.exits import COMPLETED
from refold_server.cli.screen import Screen


def command(options: argparse.Namespace) -> int:
    """Print the table."""
    screen = Screen(sys.stdout)
    if options.typescript:
        from refold_protocol.rpc.typescript import declarations

        screen.put_bytes(declarations().encode())
    else:
        screen.put_bytes(msgspec.json.format(msgspec.json.encode(schema_of(), order="sorted"), indent=1) + b"\n")
    screen.flush()
    return COMPLETED
