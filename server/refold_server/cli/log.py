"""Owns `refold log`: the views of a log, for people and, with --json, for programs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

import anyio
import msgspec

from refold_protocol.ids import SessionId
from refold_protocol.session.codec import decode_event
from refold_protocol.session.events import TurnEnd
from refold_protocol.session.header_types import EpochHeader
from refold_protocol.session.messages import Message, TextBlock, ToolCallBlock, ToolResultBlock
from refold_server.checks.offline import slices
from refold_server.cli.opened import opened, read_config
from refold_server.cli.people import Screen, call_line, end_sentence, printable, show_entry
from refold_server.sessions.reading import reading
from refold_server.sessions.views import header_view, surface_view, transcript_view
from refold_storage.interface import Handle


def command(options: argparse.Namespace) -> int:
    """Show a view of a session's log."""
    return anyio.run(_command, options)


async def _command(options: argparse.Namespace) -> int:
    async with (
        opened(read_config(options)) as around,
        reading(around.sessions, SessionId(options.session)) as (handle, owned),
    ):
        screen = Screen(sys.stdout)
        if options.view == "events":
            await _events(screen, handle, as_json=options.json)
        elif options.json:
            for value in _values(handle, options.view, owned=owned):
                screen.line(msgspec.json.encode(value).decode())
        else:
            _show(screen, handle, options.view, owned=owned)
    return 0


def _values(handle: Handle, view: str, *, owned: bool) -> Iterator[object]:
    if view == "transcript":
        yield from transcript_view(handle, handle.tail, owned=owned)
    elif view == "surface":
        yield from surface_view(handle, handle.tail, owned=owned)
    else:
        yield header_view(handle, handle.tail)


def _show(screen: Screen, handle: Handle, view: str, *, owned: bool) -> None:
    if view == "transcript":
        for entry in transcript_view(handle, handle.tail, owned=owned):
            show_entry(screen, entry)
    elif view == "surface":
        for node in surface_view(handle, handle.tail, owned=owned):
            screen.line(screen.dim(f"{node.seq:>6} {node.type}"))
            screen.line(_message(node.message) if node.message else screen.dim("       (the model does not see it)"))
    else:
        _show_header(screen, header_view(handle, handle.tail))


async def _events(screen: Screen, handle: Handle, *, as_json: bool) -> None:
    async for lines in slices(handle, 0, handle.tail):
        for line in lines:
            screen.line(line.decode() if as_json else _event(line))


def _event(line: bytes) -> str:
    event = decode_event(line)
    note = end_sentence(event.data.reason) if isinstance(event.data, TurnEnd) else ""
    start = line.find(b'"data":') + 7
    shown = note or printable(line[start:-1].decode())
    return f"{event.seq:>6} {event.type:<18} {shown if len(shown) <= 140 else shown[:139] + '…'}"


def _message(message: Message) -> str:
    parts: list[str] = []
    for block in message.content:
        match block:
            case TextBlock(text=text):
                parts.append(printable(text))
            case ToolCallBlock(name=name, arguments=arguments, id=call):
                parts.append(f"→ {call_line(name, arguments)}  [{call}]")
            case ToolResultBlock(content=content, tool_call_id=call, is_error=is_error):
                said = "\n".join(printable(inner.text) for inner in content if isinstance(inner, TextBlock))
                parts.append(f"{'✗' if is_error else '│'} {said}  [{call}]")
            case _:
                parts.append(f"[{type(block).__name__}]")
    return f"{message.role}: " + "\n".join(parts)


def _show_header(screen: Screen, header: EpochHeader | None) -> None:
    if header is None:
        screen.line(screen.dim("no request was made yet"))
        return
    screen.line(screen.bold("config"))
    screen.line(msgspec.json.format(msgspec.json.encode(header.config), indent=2).decode())
    screen.line(screen.bold("system"))
    screen.line(printable(header.system or screen.dim("(none)")))
    for tool in header.tools or ():
        screen.line(screen.bold(f"tool {tool.name}"))
        screen.line(printable(f"{tool.description}\n{tool.parameters}"))
