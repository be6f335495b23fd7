"""The command `refold serve`, where it has options; without any, `main.py` goes a shorter way."""

from __future__ import annotations

import argparse

from refold_server.cli.command_line import add_store
from refold_server.cli.exit_codes import COMPLETED, INTERNAL, MEANINGS, UNWRITABLE, USAGE

SUMMARY = "serve one editor or program over standard input and output (JSON-RPC, LSP framing)"
DESCRIPTION = """Serve one client over standard input and output: JSON-RPC 2.0 in LSP framing. For editors and programs; it
waits for their first message. Standard output carries the protocol and nothing else."""
EXIT_CODES = {
    COMPLETED: "ended by `shutdown` and `exit`",
    INTERNAL: "ended in any other way",
    USAGE: MEANINGS[USAGE],
    UNWRITABLE: MEANINGS[UNWRITABLE],
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_store(parser)


def run(options: argparse.Namespace) -> int:
    """Serve one client over standard input and output."""
    from refold_server.boot import serve

    return serve((options.store or "", options.config or ""))
