"""The command `refold fork`."""

from __future__ import annotations

import argparse

from refold_protocol.ids import SessionId
from refold_protocol.session.messages import Source
from refold_server.cli.command_line import add_folder, add_json, add_store, seq, title_text, unicode_text
from refold_server.cli.exit_codes import COMPLETED, STORE_CODES
from refold_server.cli.terminal import standard_error, standard_output

SUMMARY = "begin a session with the events of another"
DESCRIPTION = """Begin a session with the events of another, up to any of them, and print its id. Nothing is copied. A turn
that is cut in the middle is closed when the fork is opened first; what waits in the parent does not wait in the fork. Of a
session that another process writes, what is on disk can be forked. The fork lives in its parent's folder, or, where that was
moved or renamed, in the current one."""
EXIT_CODES = STORE_CODES


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("session", metavar="SESSION", type=unicode_text, help="the id of the session to begin with")
    parser.add_argument("--at", metavar="SEQ", type=seq, help="its last event that the fork has (default: the last there is)")
    parser.add_argument(
        "--title", metavar="TEXT", type=title_text, help="the fork's title (default: what its parent is called)"
    )
    add_folder(parser, "the fork's folder (default: its parent's, or the current one where that is gone)")
    add_json(parser)
    add_store(parser)


async def run(options: argparse.Namespace) -> int:
    """Fork a session and print the fork's id."""
    from refold_server.cli.command_context import open_context, read_config, standing_folder
    from refold_server.sessions.session_list import origin_of
    from refold_server.sessions.session_registry import fork_session
    from refold_server.sessions.session_settings import standing_permissions

    out = standard_output()
    async with open_context(read_config(options), plugins=False) as context:
        named, source = SessionId(options.session), Source("cli")
        folder = standing_folder(context.store.get(named).cwd, options.cwd)
        made = await fork_session(context.sessions, named, options.at, options.title, source, folder)
        parent = origin_of(context.store.get(made.session))
        mode = (await standing_permissions(context.store, made.session)).mode
    if options.json:
        inherited = {} if mode is None else {"permissions": mode}
        out.put_json({"session": made.session, "tail": made.tail, "parent": parent, **inherited})
    else:
        out.line(made.session)
    out.flush()
    if mode == "allow":
        standard_error().line(
            "refold: note: like its parent, the fork lets every tool run without a question; "
            "`refold run --session ID --permissions ask PROMPT` ends that"
        )
    return COMPLETED
