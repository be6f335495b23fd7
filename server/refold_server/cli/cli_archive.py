"""The command `refold archive`."""

from __future__ import annotations

import argparse

from refold_server.cli.command_line import add_json, add_sessions, add_store
from refold_server.cli.exit_codes import COMPLETED, STORE_CODES
from refold_server.cli.terminal import standard_output

SUMMARY = "leave sessions out of lists, or bring them back"
DESCRIPTION = """Leave sessions out of lists that do not ask for archived ones; nothing else changes. With --undo, bring
them back."""
EXIT_CODES = STORE_CODES


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_sessions(parser)
    parser.add_argument("--undo", action="store_true", help="bring them back into lists")
    add_json(parser)
    add_store(parser)


async def run(options: argparse.Namespace) -> int:
    """Archive sessions, or bring them back: all of them, or none."""
    from refold_server.cli.command_context import open_context, read_config

    out = standard_output()
    async with open_context(read_config(options), plugins=False) as context:
        names = list(dict.fromkeys(map(context.session, options.sessions)))
        for name in names:
            context.store.get(name)
        for name in names:
            await context.store.set_archived(name, archived=not options.undo)
            if not options.json:
                out.line(f"{'back' if options.undo else 'archived'} {name}")
    if options.json:
        out.put_json({"sessions": names, "archived": not options.undo})
    out.flush()
    return COMPLETED
