"""The command `refold permissions`."""

from __future__ import annotations

import argparse

from refold_protocol.ids import SessionId
from refold_server.cli.command_line import add_json, add_session, add_store, unicode_text
from refold_server.cli.exit_codes import COMPLETED, STORE_CODES
from refold_server.cli.formatting import one_line
from refold_server.cli.terminal import standard_output

SUMMARY = "show what a session lets run without a question, and take it back"
DESCRIPTION = """Show the permission mode of a session and the tools that somebody allowed for it. `--revoke TOOL` has a tool
asked about again, `--revoke-all` every one; what is running goes on. A session that another process writes is read only."""
EXIT_CODES = STORE_CODES

SHOWN_CHARACTERS = 200


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_session(parser)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--revoke", metavar="TOOL", action="append", type=unicode_text, help="ask about this tool again")
    which.add_argument("--revoke-all", action="store_true", help="ask about every tool again")
    add_json(parser, "print the permissions as one JSON object")
    add_store(parser)


async def run(options: argparse.Namespace) -> int:
    """Show the permissions of a session, after they were taken back where that is wanted."""
    from refold_protocol.errors import ConfigError
    from refold_server.cli.command_context import open_context, read_config
    from refold_server.sessions.session_settings import SettingsPatch, standing_permissions

    out, session = standard_output(), SessionId(options.session)
    async with open_context(read_config(options), plugins=False) as context:
        found = await standing_permissions(context.store, session)
        wanted = tuple(found.tools if options.revoke_all else options.revoke or ())
        unknown = [tool for tool in wanted if tool not in found.tools]
        if unknown:
            raise ConfigError("--revoke", f"{one_line(unknown[0], SHOWN_CHARACTERS)} was not allowed for this session")
        if wanted:
            live = await context.sessions.open(session)
            await live.configure(SettingsPatch(revoked=wanted))
            found = await standing_permissions(context.store, session)
    if options.json:
        out.put_json({"session": session, "mode": found.mode, "grants": found.tools, "revoked": wanted})
    else:
        out.line(f"mode: {found.mode or 'that of the configuration'}")
        for tool in found.tools:
            out.line(f"allowed for the session: {one_line(tool, SHOWN_CHARACTERS)}")
        for tool in wanted:
            out.line(f"asked about again: {one_line(tool, SHOWN_CHARACTERS)}")
    out.flush()
    return COMPLETED
