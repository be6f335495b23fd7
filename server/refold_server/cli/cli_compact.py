"""The command `refold compact`."""

from __future__ import annotations

import argparse
from functools import partial

from refold_protocol.ids import SessionId
from refold_protocol.session.events import UserMessage
from refold_protocol.session.messages import text_of
from refold_server.cli.command_line import add_json, add_session, add_store, unicode_text
from refold_server.cli.exit_codes import COMPLETED, FAILED, MEANINGS
from refold_server.cli.formatting import printable
from refold_server.cli.terminal import standard_output

SUMMARY = "sum up a session's history, so that the model has room again"
DESCRIPTION = """Ask the session's model (or the one that compaction.summary_model names) for a summary of the whole history,
which stands in its place for the model from then on. Nothing is lost: people see the history as before, and the log keeps
it. Where the summary cannot be had, or would not be shorter, nothing changes. A signal stops it and changes nothing."""
EXIT_CODES = MEANINGS | {FAILED: "the history could not be compacted, and is what it was"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_session(parser)
    parser.add_argument(
        "--instructions", metavar="TEXT", type=unicode_text, help="what the summary should hold besides, in your words"
    )
    add_json(parser)
    add_store(parser)


def run(options: argparse.Namespace) -> int:
    """Compact a session's history; a signal stops that and changes nothing."""
    from refold_server.cli.command_context import Interrupts

    interrupts = Interrupts()
    with interrupts.installed():
        return interrupts.run(partial(_compact, options))


async def _compact(options: argparse.Namespace) -> int:
    from refold_server.cli.command_context import open_context, read_config
    from refold_server.sessions.session_registry import compact_session

    out = standard_output()
    async with open_context(read_config(options), turns=True) as context:
        session = await context.sessions.open(SessionId(options.session))
        done = await compact_session(session, options.instructions)
        data = next(iter(session.session_log.handle.read(done.seq, done.seq))).data
    if options.json:
        out.put_json({"session": session.id, "seq": done.seq, "tokens": done.tokens, "shadowedTokens": done.shadowed})
    else:
        out.line(printable(text_of(data.content)) if isinstance(data, UserMessage) else "")
        out.line(f"event {done.seq} stands for the history: about {done.tokens:,} tokens in place of {done.shadowed:,}")
    out.flush()
    return COMPLETED
