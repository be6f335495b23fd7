"""The command `refold log`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec

from refold_protocol.errors import ConfigError, SessionCorruptionError
from refold_protocol.ids import SessionId
from refold_protocol.session.codec import decode_event
from refold_protocol.session.events import ApprovalAsked, ApprovalDecided, Event, RequestHeader, RequestHeaderDelta, TurnEnd
from refold_protocol.session.header import fold_header
from refold_protocol.session.messages import EpochHeader, Message, TextBlock, ToolCallBlock, ToolResultBlock
from refold_server.cli.command_line import add_after, add_json, add_session, add_store
from refold_server.cli.exit_codes import COMPLETED, STORE_CODES
from refold_server.cli.formatting import (
    asked_sentence,
    call_line,
    decided_sentence,
    end_sentence,
    entry_lines,
    header_sentence,
    one_line,
    printable,
    whole_line,
)
from refold_server.cli.terminal import OutputStream, Style, standard_output

if TYPE_CHECKING:
    from refold_server.sessions.session_registry import Sessions
    from refold_server.sessions.session_views import SurfaceNode
    from refold_storage.interface import Handle

SUMMARY = "show a session's log"
DESCRIPTION = """Show a session's log, also while another process writes it. Where a turn was cut off by a crash, transcript and
surface show it as the next turn will find it; the events view shows what is recorded. Writes nothing."""
EXIT_CODES = STORE_CODES

VIEWS: Final = ("transcript", "surface", "events", "header")
"""Views that a person may ask for."""

EVENT_CHARACTERS: Final = 140
"""How much of an event's data one line shows."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_session(parser)
    parser.add_argument(
        "--view",
        choices=VIEWS,
        default="transcript",
        help="transcript: as a person read it (default); surface: as the model sees it now; events: every event that is "
        "recorded; header: config, system text and tools in force",
    )
    add_after(parser)
    add_json(parser, "one JSON value a line; events are printed exactly as stored")
    add_store(parser)


async def run(options: argparse.Namespace) -> int:
    """Show a view of a session's log."""
    from refold_server.cli.command_context import open_context, read_config
    from refold_server.sessions.session_views import reading

    out = standard_output()
    if options.follow and options.view != "events":
        raise ConfigError("--follow", "needs --view events: the other views are of a log as it stands")
    if options.after is not None and options.view == "header":
        raise ConfigError("--after", "is for views that have events, and a header is one whole")
    async with (
        open_context(read_config(options)) as context,
        reading(context.sessions, SessionId(options.session)) as (handle, owned),
    ):
        if options.view == "events":
            await _print_events(out, context.sessions, handle, options)
        else:
            _print_view(out, handle, options, owned=owned)
        out.flush()
    return COMPLETED


def _print_view(out: OutputStream, handle: Handle, options: argparse.Namespace, *, owned: bool) -> None:
    from refold_server.sessions.session_views import header_view, surface_view, transcript_view

    after = -1 if options.after is None else options.after
    if options.view == "header":
        header = header_view(handle, handle.tail)
        values, lines = [header], _header_lines(header, out.style)
    elif options.view == "surface":
        values = [node for node in surface_view(handle, handle.tail, owned=owned) if node.seq > after]
        lines = (line for node in values for line in _node_lines(node, out.style))
    else:
        values = [entry for entry in transcript_view(handle, handle.tail, owned=owned) if entry.seq > after]
        lines = (line for entry in values for line in entry_lines(entry, out.style))
    if options.json:
        for value in values:
            out.put_json(value)
    else:
        for line in lines:
            out.line(line)


def _node_lines(node: SurfaceNode, style: Style) -> Iterator[str]:
    yield style.dim(f"{node.seq:>6} {whole_line(node.type)}")
    yield _message(node.message) if node.message else style.dim("       (the model does not see it)")


async def _print_events(out: OutputStream, sessions: Sessions, handle: Handle, options: argparse.Namespace) -> None:
    from refold_server.cli.stored_lines import stored_lines

    header: EpochHeader | None = None
    after = -1 if options.after is None else options.after
    async for lines in stored_lines(sessions, handle, after, follow=options.follow):
        if options.json:
            out.put_bytes(b"".join(line + b"\n" for line in lines))
            out.flush()
            continue
        shown: list[str] = []
        for line in lines:
            event = decode_event(line)
            text, header = _event_text(event, header)
            shown.append(f"{event.seq:>6} {whole_line(event.type):<18} {one_line(text, EVENT_CHARACTERS)}\n")
        out.put("".join(shown))
        out.flush()


def _event_text(event: Event, header: EpochHeader | None) -> tuple[str, EpochHeader | None]:
    """Give what an event says, and the header after it; of a log that does not agree with itself, the data as it stands."""
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
                parts.append(f"→ {call_line(name, arguments)}  [{whole_line(call)}]")
            case ToolResultBlock(content=content, tool_call_id=call, is_error=is_error):
                said = "\n".join(printable(inner.text) for inner in content if isinstance(inner, TextBlock))
                parts.append(f"{'✗' if is_error else '│'} {said}  [{whole_line(call)}]")
            case _:
                parts.append(f"[{type(block).__name__}]")
    return f"{message.role}: " + "\n".join(parts)


def _header_lines(header: EpochHeader | None, style: Style) -> Iterator[str]:
    if header is None:
        yield style.dim("no request was made yet")
        return
    yield style.bold("config")
    yield printable(msgspec.json.format(msgspec.json.encode(header.config), indent=2).decode())
    yield style.bold("system")
    yield style.dim("(none)") if header.system is None else printable(header.system)
    for message in header.message_prefix or ():
        yield style.bold("prefix")
        yield _message(message)
    for tool in header.tools or ():
        yield style.bold(f"tool {whole_line(tool.name)}")
        yield printable(f"{tool.description}\n{tool.parameters}")
