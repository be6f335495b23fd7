"""The stream of the offline provider: a reply in small events, as a server of the dialect would send it, or a script's.

A script holds one JSON object a line, one line a request, in order, and says exactly what comes: text and thinking in pieces
of a chosen size, calls, delays, a status, raw bytes, a stream that breaks. Running out of lines is an error, so that a test
notices a request that it did not expect. Tokens are counted here too: four characters each, and what a cache would have held.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from refold_protocol.errors import ProviderError
from refold_server.providers.http_failures import status_error

CHARACTERS_PER_TOKEN: Final = 4
PIECE_CHARACTERS: Final = 8
"""How much text one event carries."""


class SaidCall(Struct, frozen=True):
    """A call that a reply asks for; `arguments` is JSON text. Without an `id` it gets one that follows from the body."""

    name: str
    arguments: str
    id: str | None = None


class Said(Struct, frozen=True):
    """A reply before it is cut into events."""

    text: str = ""
    calls: tuple[SaidCall, ...] = ()
    reasoning: str = ""
    finish: str | None = None


class Writes(Struct, frozen=True):
    """What goes over the imaginary wire: one write after the other, each after `delay_s` seconds; `cut` breaks the
    connection after the last."""

    events: tuple[bytes, ...]
    delay_s: float = 0.0
    cut: bool = False


def spoken(said: Said, body: bytes, cached: int, piece: int = PIECE_CHARACTERS) -> tuple[bytes, ...]:
    """Give the events of a reply to `body`, `piece` characters of text each; `cached` counts the characters of the body
    that a cache would have held."""
    mark = hashlib.sha256(body).hexdigest()[:16]
    events = [_event(mark, delta) for delta in _deltas(said, mark, piece)]
    finish = said.finish or ("tool_calls" if said.calls else "stop")
    events.append(_event(mark, {}, finish))
    usage = _usage(said, len(body.decode("utf-8", "replace")), cached)
    events.append(_data({"id": mark, "object": "chat.completion.chunk", "choices": [], "usage": usage}))
    events.append(b"data: [DONE]\n\n")
    return tuple(events)


class PrefixMemory:
    """Remembers bodies to tell what a provider's cache would have held. Of a body that begins with all of an earlier one,
    closing brackets aside, only the longer is kept."""

    def __init__(self) -> None:
        self._bodies: list[bytes] = []

    def common_characters(self, body: bytes) -> int:
        """Give the length, in characters, of the longest beginning that `body` shares with any body before; remember it."""
        shared = [_common(body, known) for known in self._bodies]
        kept = (known for known, length in zip(self._bodies, shared, strict=True) if length < len(known) - 2)
        self._bodies = [*kept, body]
        return len(body[: max(shared, default=0)].decode("utf-8", "ignore"))


def _common(one: bytes, two: bytes) -> int:
    low, high = 0, min(len(one), len(two))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == two[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _deltas(said: Said, mark: str, piece: int) -> Iterator[dict[str, Any]]:
    for part in _pieces(said.reasoning, piece):
        yield {"reasoning_content": part}
    for part in _pieces(said.text, piece):
        yield {"content": part}
    for index, call in enumerate(said.calls):
        start = {"name": call.name, "arguments": ""}
        name = f"call_{mark}_{index}" if call.id is None else call.id
        yield {"tool_calls": [{"index": index, "id": name, "type": "function", "function": start}]}
        for part in _pieces(call.arguments, piece):
            yield {"tool_calls": [{"index": index, "function": {"arguments": part}}]}


def _pieces(text: str, piece: int) -> Iterator[str]:
    return (text[at : at + piece] for at in range(0, len(text), piece))


def _usage(said: Said, body_characters: int, cached: int) -> dict[str, Any]:
    output = len(said.text) + len(said.reasoning) + sum(len(call.name) + len(call.arguments) for call in said.calls)
    return {
        "prompt_tokens": -(-body_characters // CHARACTERS_PER_TOKEN),
        "completion_tokens": -(-output // CHARACTERS_PER_TOKEN),
        "prompt_tokens_details": {"cached_tokens": cached // CHARACTERS_PER_TOKEN},
    }


def _event(mark: str, delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return _data({"id": mark, "object": "chat.completion.chunk", "choices": [choice]})


def _data(value: dict[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode(value) + b"\n\n"


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
