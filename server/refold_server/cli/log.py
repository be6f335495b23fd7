"""Owns `refold log`: the views of a log, for people and, with --json, for programs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import partial

import anyio.lowlevel
import msgspec

from refold_protocol.errors import SessionCorruptionError
from refold_protocol.ids import SessionId
from refold_protocol.session.codec import decode_event
from refold_protocol.session.events import ApprovalAsked, ApprovalDecided, Event, RequestHeader, RequestHeaderDelta, TurnEnd
from refold_protocol.session.header import fold_header
from refold_protocol.session.header_types import EpochHeader
from refold_protocol.session.messages import Message, TextBlock, ToolCallBlock, ToolResultBlock
from refold_server.cli.exits import COMPLETED
from refold_server.cli.header_changes import header_sentence
from refold_server.cli.interrupts import run_reading
from refold_server.cli.opened import opened, read_config
from refold_server.cli.people import (
    asked_sentence,
    call_line,
    decided_sentence,
    end_sentence,
    entry_lines,
    one_line,
    printable,
)
from refold_server.cli.screen import Look, Screen
from refold_server.sessions.reading import reading
from refold_server.sessions.views import header_view, surface_view, transcript_view
from refold_storage.interface import Handle
from refold_storage.slices import read_slices

EVENT_CHARACTERS = 140
"""How much of an event's data one line shows."""


def command(options: argparse.Namespace) -> int:
    """Show a view of a session's log."""
    return run_reading(partial(_command, options))


async def _command(options: argparse.Namespace) -> int:
    screen = Screen(sys.stdout)
    async with (
        opened(read_config(options)) as around,
        reading(around.sessions, SessionId(options.session)) as (handle, owned),
    ):
        if options.view == "events":
            await _events(screen, handle, as_json=options.json)
        elif options.json:
            for value in _values(handle, options.view, owned=owned):
                screen.put_bytes(msgspec.json.encode(value) + b"\n")
        else:
            for line in _lines(handle, options.view, screen.look, owned=owned):
                screen.line(line)
        screen.flush()
    return COMPLETED


def _values(handle: Handle, view: str, *, owned: bool) -> Iterator[object]:
    if view == "transcript":
        yield from transcript_view(handle, handle.tail, owned=owned)
    elif view == "surface":
        yield from surface_view(handle, handle.tail, owned=owned)
    else:
        yield header_view(handle, handle.tail)


def _lines(handle: Handle, view: str, look: Look, *, owned: bool) -> Iterator[str]:
    if view == "transcript":
        for entry in transcript_view(handle, handle.tail, owned=owned):
            yield from entry_lines(entry, look)
    elif view == "surface":
        for node in surface_view(handle, handle.tail, owned=owned):
            yield look.dim(f"{node.seq:>6} {printable(node.type)}")
            yield _message(node.message) if node.message else look.dim("       (the model does not see it)")
    else:
        yield from _header_lines(header_view(handle, handle.tail), look)


async def _events(screen: Screen, handle: Handle, *, as_json: bool) -> None:
    header: EpochHeader | None = None
    for lines in read_slices(handle, 0, handle.tail):
        if as_json:
            screen.put_bytes(b"".join(line + b"\n" for line in lines))
            await anyio.lowlevel.checkpoint()
            continue
        shown: list[str] = []
        for line in lines:
            event = decode_event(line)
            text, header = _said(event, header)
            shown.append(f"{event.seq:>6} {printable(event.type):<18} {one_line(text, EVENT_CHARACTERS)}\n")
        screen.put("".join(shown))
        await anyio.lowlevel.checkpoint()


def _said(event: Event, header: EpochHeader | None) -> tuple[str, EpochHeader | None]:
    """Give what an event says, and the header behind it; of a log that does not agree with itself, the data as it stands."""
    if isinstance(event.data, TurnEnd):
        return end_sentence(event.data.reason), header
    if isinstance(event.data, ApprovalAsked):
        return asked_sentence(event.data), header
    if isinstance(event.data, ApprovalDecided):
        return decided_sentence(event.data), header
    if isinstance(event.data, RequestHeader | RequestHeaderDelta):
        with suppress(SessionCorruptionError):  # a delta that does not fit is shown as it stands; `refold verify` names it
            after = fold_header((event,), header)
            if after is not None:
                return header_sentence(event.data, header, after), after
    data = event.line[event.line.find(b'"data":') + 7 : -1]
    return data[: EVENT_CHARACTERS * 16].decode("utf-8", "ignore"), header


def _message(message: Message) -> str:
    parts: list[str] = []
    for block in message.content:
        match block:
            case TextBlock(text=text):
                parts.append(printable(text))
            case ToolCallBlock(name=name, arguments=arguments, id=call):
                parts.append(f"→ {call_line(name, arguments)}  [{printable(call)}]")
            case ToolResultBlock(content=content, tool_call_id=call, is_error=is_error):
                said = "\n".join(printable(inner.text) for inner in content if isinstance(inner, TextBlock))
                parts.append(f"{'✗' if is_error else '│'} {said}  [{printable(call)}]")
            case _:
                parts.append(f"[{type(block).__name__}]")
    return f"{message.role}: " + "\n".join(parts)


def _header_lines(header: EpochHeader | None, look: Look) -> Iterator[str]:
    if header is None:
        yield look.dim("no request was made yet")
        return
    yield look.bold("config")
    yield printable(msgspec.json.format(msgspec.json.encode(header.config), indent=2).decode())
    yield look.bold("system")
    yield look.dim("(none)") if header.system is None else printable(header.system)
    for message in header.message_prefix or ():
        yield look.bold("prefix")
        yield _message(message)
    for tool in header.tools or ():
        yield look.bold(f"tool {printable(tool.name)}")
        yield printable(f"{tool.description}\n{tool.parameters}")
