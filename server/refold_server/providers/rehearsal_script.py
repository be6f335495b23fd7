"""Owns scripted replies of the rehearsal provider, for tests: one JSON object a line, one line a request, in order.

A script says exactly what comes: text and thinking in pieces of a chosen size, calls, delays, a status, raw bytes, a
stream that breaks. Running out of lines is an error, so that a test notices a request that it did not expect.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from refold_protocol.errors import ProviderError
from refold_server.providers.http_failures import status_error
from refold_server.providers.rehearsal_wire import PIECE_CHARACTERS, Said, SaidCall, Writes, spoken


class ScriptedCall(Struct, frozen=True, forbid_unknown_fields=True):
    """A call: `arguments` is an object, or a string that is sent as it stands, valid JSON or not."""

    name: str
    arguments: Any = msgspec.Raw(b"{}")
    id: str | None = None


class ScriptedReply(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """One line of a script.

    `chunk` is the number of characters of an event's text, `delay_ms` the wait before each event, in milliseconds.
    `status` (with `text` or `raw` as body) is an HTTP answer that is no stream. `raw` is the text of a
    whole stream in place of the events; `cut` breaks the connection after so many events. `finish` is the finish reason.
    """

    text: str = ""
    reasoning: str = ""
    calls: tuple[ScriptedCall, ...] = ()
    chunk: Annotated[int, Meta(ge=1)] = PIECE_CHARACTERS
    delay_ms: Annotated[int, Meta(ge=0)] = 0
    status: int = 200
    raw: str | None = None
    cut: Annotated[int, Meta(ge=0)] | None = None
    finish: str | None = None


class Script:
    """A script and how far it has run. The file is read with the first request."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._replies: list[ScriptedReply] | None = None
        self._used = 0

    def next_reply(self, body: bytes, cached: int) -> Writes:
        """Give the next reply, to `body`. Raises ProviderError: the one that a status stands for, or `provider.rejected`
        when the script cannot be read or has run out."""
        if self._replies is None:
            self._replies = self._read()
        self._used += 1
        if self._used > len(self._replies):
            raise self._refused(f"has {len(self._replies)} replies, and this is request {self._used}")
        reply = self._replies[self._used - 1]
        if reply.status != 200:
            raise status_error(reply.status, {}, (reply.raw or reply.text).encode(), time.time())
        events = (reply.raw.encode(),) if reply.raw is not None else spoken(_said(reply), body, cached, reply.chunk)
        return Writes(events[: reply.cut], reply.delay_ms / 1000, cut=reply.cut is not None)

    def _read(self) -> list[ScriptedReply]:
        try:
            lines = Path(self._path).read_bytes().split(b"\n")
        except OSError as error:
            raise self._refused(f"cannot be read: {error.strerror}") from None
        replies: list[ScriptedReply] = []
        for number, line in enumerate(lines, 1):
            if line.strip():
                try:
                    replies.append(msgspec.json.decode(line, type=ScriptedReply))
                except msgspec.DecodeError as error:
                    raise self._refused(f"line {number}: {error}") from None
        return replies

    def _refused(self, reason: str) -> ProviderError:
        return ProviderError("provider.rejected", f"the rehearsal script {self._path} {reason}")


def _said(reply: ScriptedReply) -> Said:
    return Said(reply.text, tuple(_call(call) for call in reply.calls), reply.reasoning, reply.finish)


def _call(call: ScriptedCall) -> SaidCall:
    arguments = call.arguments
    return SaidCall(call.name, arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode(), call.id)
