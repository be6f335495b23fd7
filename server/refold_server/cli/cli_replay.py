"""The command `refold replay`. Reads the store and a folder, and reaches no network."""

from __future__ import annotations

import argparse
from pathlib import Path

from refold_protocol.ids import SessionId
from refold_server.cli.command_line import add_json, add_session, add_store, unicode_text
from refold_server.cli.exit_codes import COMPLETED, INTERNAL, STORE_CODES, USAGE
from refold_server.cli.formatting import printable
from refold_server.cli.terminal import standard_output

SUMMARY = "answer a session's requests from recorded replies, and compare with its log"
DESCRIPTION = """Read the replies that `refold run --record` kept as if they came from the server now, and compare what they
say with what the session's log holds: a report of a server's odd reply becomes a test. Changes nothing."""
EXIT_CODES = STORE_CODES | {
    COMPLETED: "every request has its reply, and all are equal",
    INTERNAL: "a reply says something else now; or an internal error, or output that cannot be written",
    USAGE: "a reply is missing; or wrong usage or configuration, no such session",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_session(parser)
    parser.add_argument("--from", dest="folder", metavar="FOLDER", required=True, type=unicode_text, help="what --record kept")
    add_json(parser, "print each attempt as a JSON object, one a line")
    add_store(parser)


async def run(options: argparse.Namespace) -> int:
    """Compare each attempt and give the exit code: a difference goes before what is missing."""
    from refold_server.cli.command_context import open_context, read_config
    from refold_server.requests.reply_replay import replay
    from refold_server.sessions.session_views import reading

    async with (
        open_context(read_config(options), plugins=False) as context,
        reading(context.sessions, SessionId(options.session)) as (handle, _),
    ):
        rows = await replay(handle.read(), Path(options.folder))
    out = standard_output()
    for row in rows:
        if options.json:
            out.put_json(row)
        else:
            said = "" if row.difference is None else f": {row.difference}"
            out.line(printable(f"{row.turn}.{row.step} attempt {row.attempt} {row.verdict}{said}"))
    out.flush()
    verdicts = {row.verdict for row in rows}
    return INTERNAL if "different" in verdicts else USAGE if "missing" in verdicts else COMPLETED
