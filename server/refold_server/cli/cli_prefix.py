"""The command `refold prefix`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Final

from refold_protocol.ids import SessionId
from refold_protocol.session.messages import TextBlock
from refold_server.cli.command_line import add_json, add_store, unicode_text
from refold_server.cli.exit_codes import COMPLETED, STORE_CODES
from refold_server.cli.formatting import printable, whole_line
from refold_server.cli.terminal import Style, standard_error, standard_output
from refold_server.cli.text_tables import aligned

if TYPE_CHECKING:
    from refold_server.config import Config
    from refold_server.sessions.session_reports import PrefixComposeResult

SUMMARY = "show what stands before a session's history, and who says it"
DESCRIPTION = """Show what each request of a session begins with, before anything that was said in it: the project's
instructions, the list of skills, an outline of the workspace, what plugins add. It is put together when a session is opened
and stays as it is until it is opened again. What another process has in force is in `refold log SESSION --view header`."""
EXIT_CODES = STORE_CODES

_HEADINGS: Final = ("contributor", "messages", "bytes", "tokens", "sha256")
_LEFT: Final = (0, 4)

_DIGEST: Final = 12
"""Characters of a digest in the table."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    which = parser.add_mutually_exclusive_group()
    which.add_argument("session", metavar="SESSION", nargs="?", type=unicode_text, help="the id of a session")
    which.add_argument(
        "--cwd", metavar="FOLDER", type=unicode_text, help="a session that would begin there (default: the current folder)"
    )
    parser.add_argument("--show", action="store_true", help="print the messages themselves")
    add_json(parser, "print everything as one JSON object, as prefix/compose gives it")
    add_store(parser)


async def run(options: argparse.Namespace) -> int:
    """Show a prefix."""
    from refold_server.cli.command_context import open_context, read_config
    from refold_server.sessions.session_reports import compose_session

    out, err = standard_output(), standard_error()
    config = read_config(options)
    if options.session is None:
        result = await _of_folder(config, _folder(options.cwd))
    else:
        async with open_context(config) as context:
            result = await compose_session(context.sessions, SessionId(options.session))
    if options.json:
        out.put_json(result)
    else:
        for line in _lines(result, out.style, show=options.show):
            out.line(line)
    out.flush()
    for sentence in result.failures:
        err.line(err.style.red(printable(sentence)))
    return COMPLETED


def _folder(cwd: str | None) -> str:
    """Give the folder that is meant; links in its path stay. Raises ConfigError for one that is not there."""
    from refold_server.cli.command_context import current_folder
    from refold_server.sessions.session_registry import folder_path

    return str(folder_path(current_folder() if cwd is None else os.path.abspath(cwd)))  # noqa: PTH100


async def _of_folder(config: Config, folder: str) -> PrefixComposeResult:
    from refold_server.plugins.session_hooks import NOWHERE, SessionHooks
    from refold_server.services import load_services
    from refold_server.sessions.session_reports import compose_anew

    with redirect_stdout(sys.stderr):  # what plugins print
        shared = await load_services(config)
        return await compose_anew(SessionHooks(shared.plugins, NOWHERE, folder))


def _lines(result: PrefixComposeResult, style: Style, *, show: bool) -> Iterator[str]:
    """Give the text of the messages where it is to be shown, else the table; then what can be said of the whole."""
    if show:
        yield from _text(result, style)
        return
    rows = [_HEADINGS]
    rows += [
        (f"{one.plugin}:{one.contributor}", str(len(one.messages)), f"{one.bytes:,}", f"{one.tokens:,}", _short(one.sha256))
        for one in result.contributors
    ]
    count = sum(len(one.messages) for one in result.contributors)
    rows.append(("all", str(count), f"{result.bytes:,}", f"{result.tokens:,}", _short(result.sha256)))
    heading, *lines = (line.rstrip() for line in aligned(rows, _LEFT))
    yield style.dim(heading)
    yield from map(printable, lines)
    yield style.dim(_summary(result))


def _text(result: PrefixComposeResult, style: Style) -> Iterator[str]:
    for one in result.contributors:
        for message in one.messages:
            yield style.dim(whole_line(f"{one.plugin}:{one.contributor}, {message.role}"))
            for block in message.content:
                text = block.text if isinstance(block, TextBlock) else f"({type(block).__name__})"
                yield from (printable(line) for line in text.split("\n"))
            yield ""


def _summary(result: PrefixComposeResult) -> str:
    if result.composed:
        return "This is in force: every request of the session as it is open begins with it."
    if result.recorded is None:
        return "A session that is opened now begins each request with it."
    same = "the same as" if result.recorded else "another one than that of"
    return f"The session would begin each request with it when it is opened next; it is {same} its last request."


def _short(digest: str | None) -> str:
    return "-" if digest is None else digest[:_DIGEST]
