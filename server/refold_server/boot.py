"""Owns the first milliseconds of `refold serve`: it answers `initialize` before anything heavy is imported.

`import asyncio` brings ssl along and takes longer than all that is needed here, so the first frame is read and answered
with plain descriptors. Then the connection goes to the daemon, whatever its first frame was: the pure functions that
treat it are the same there. Must not import asyncio, lmdb, httpx, pygls or the session's types, and knows no methods but
`initialize`.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from typing import TypeAlias, cast

import msgspec

from refold_protocol.rpc.connection_state import Lifecycle
from refold_protocol.rpc.envelope import RpcRequest, decode_message, encode_result
from refold_protocol.rpc.framing import Frame, FrameEvent, FrameReader, encode_frame
from refold_protocol.rpc.initialize import InitializeParams
from refold_protocol.rpc.initialize_reply import initialize_result
from refold_server.rpc.descriptors import (
    READ_BYTES,
    Descriptors,
    Handover,
    make_stderr_harmless,
    open_ancestor,
    read_some,
    take_stdio,
    write_all,
)

Daemon: TypeAlias = Callable[[Handover], int]
"""Serves a connection to its end and gives the process's exit code."""


def serve(arguments: Sequence[str] = (), daemon: str = "refold_server.daemon:serve") -> int:
    """Serve the connection on standard input and output to its end; give the exit code, by LSP's rule 0 or 1.

    `daemon` is `module:function`, imported only after `initialize` was answered.
    """
    try:
        descriptors = take_stdio()
    except OSError as error:
        sys.exit(f"refold serve needs a standard input and a standard output: {error}")
    try:
        handover = answer_first(descriptors, tuple(arguments))
        if handover is None:
            return 1
        module, _, name = daemon.partition(":")
        return cast("Daemon", getattr(importlib.import_module(module), name))(handover)
    finally:
        make_stderr_harmless()


def answer_first(descriptors: Descriptors, arguments: tuple[str, ...] = ()) -> Handover | None:
    """Read up to the first whole frame; answer it if it is a good `initialize`, else leave it in the backlog.

    None when the client was gone before it had its answer.
    """
    frames, lifecycle = FrameReader(), Lifecycle()
    events: list[FrameEvent] = []
    ended = False
    while not events and not ended:
        data = read_some(descriptors.reading, READ_BYTES)
        events, ended = frames.feed(data), not data
    if not events:
        return None
    request = _initialize_request(events)
    handover = Handover(descriptors, arguments, frames, lifecycle, tuple(events), ended)
    if request is None:
        return handover
    try:
        params = _PARAMS.decode(b"{}" if request.params is None else request.params)
    except (msgspec.DecodeError, RecursionError):  # the endpoint finds the same, and says what is wrong
        return handover
    editor = open_ancestor(params.process_id)
    if not write_all(descriptors.writing, encode_frame(encode_result(request.id, initialize_result(params)))):
        return None
    lifecycle.initialized()
    pending_writes, raw = tuple(events[1:]), request.params
    return msgspec.structs.replace(handover, pending_writes=pending_writes, initialize=params, raw_params=raw, editor=editor)


def _initialize_request(events: list[FrameEvent]) -> RpcRequest | None:
    if not isinstance(events[0], Frame):
        return None
    message = decode_message(events[0].body)
    return message if isinstance(message, RpcRequest) and message.method == "initialize" else None


_PARAMS = msgspec.json.Decoder(InitializeParams)
