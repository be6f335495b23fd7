"""Owns `refold prefix`: what stands before a session's history, who says it, and what it costs in every request."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from functools import partial
from typing import Final

import msgspec

from refold_protocol.ids import SessionId
from refold_protocol.rpc.composing import PrefixComposeResult
from refold_protocol.session.messages import TextBlock
from refold_server.cli.exits import COMPLETED
from refold_server.cli.interrupts import run_reading
from refold_server.cli.opened import opened, read_config
from refold_server.cli.people import printable
from refold_server.cli.prompt import current_folder
from refold_server.cli.screen import Look, Screen
from refold_server.config import Config
from refold_server.host import surroundings
from refold_server.loop.seams import NOWHERE, Seams
from refold_server.sessions.composing import compose_anew, compose_session
from refold_server.sessions.registry import folder_path

_HEADINGS: Final = ("contributor", "messages", "bytes", "tokens", "sha256")

_DIGEST: Final = 12
"""Characters of a digest in the table."""


def command(options: argparse.Namespace) -> int:
    """Show a prefix."""
    return run_reading(partial(_command, options))


async def _command(options: argparse.Namespace) -> int:
    out, aside = Screen(sys.stdout), Screen(sys.stderr, vital=False)
    config = read_config(options)
    if options.session is None:
        result = await _of_folder(config, _folder(options.cwd))
    else:
        async with opened(config) as around:
            result = await compose_session(around.sessions, SessionId(options.session))
    if options.json:
        out.put_bytes(msgspec.json.encode(result) + b"\n")
    else:
        for line in _lines(result, out.look, show=options.show):
            out.line(line)
    out.flush()
    for sentence in result.failures:
        aside.line(aside.look.red(printable(sentence)))
    return COMPLETED


def _folder(cwd: str | None) -> str:
    """Give the folder that is meant; links in it stay. Raises ConfigError for one that is not there."""
    return str(folder_path(current_folder() if cwd is None else os.path.abspath(cwd)))  # noqa: PTH100


async def _of_folder(config: Config, folder: str) -> PrefixComposeResult:
    with redirect_stdout(sys.stderr):  # what plugins print
        shared = await surroundings(config)
        return await compose_anew(Seams(shared.plugins, NOWHERE, folder))


def _lines(result: PrefixComposeResult, look: Look, *, show: bool) -> Iterator[str]:
    """Give the text of the messages where it is to be shown, else the table; then what can be said of the whole."""
    if show:
        yield from _text(result, look)
        return
    rows = [
        (f"{one.plugin}:{one.contributor}", str(len(one.messages)), f"{one.bytes:,}", f"{one.tokens:,}", _short(one.sha256))
        for one in result.contributors
    ]
    count = sum(len(one.messages) for one in result.contributors)
    rows.append(("all", str(count), f"{result.bytes:,}", f"{result.tokens:,}", _short(result.sha256)))
    widths = [max(map(len, column)) for column in zip(_HEADINGS, *rows, strict=True)]
    yield look.dim(_line(_HEADINGS, widths))
    for row in rows:
        yield printable(_line(row, widths))
    yield look.dim(_summary(result))


def _text(result: PrefixComposeResult, look: Look) -> Iterator[str]:
    for one in result.contributors:
        for message in one.messages:
            yield look.dim(printable(f"{one.plugin}:{one.contributor}, {message.role}"))
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


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = (
        text.ljust(width) if at in (0, 4) else text.rjust(width)
        for at, (text, width) in enumerate(zip(row, widths, strict=True))
    )
    return "  ".join(cells).rstrip()


def _short(digest: str | None) -> str:
    return "-" if digest is None else digest[:_DIGEST]
