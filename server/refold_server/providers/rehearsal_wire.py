"""Owns the stream that the rehearsal provider writes: a reply in small events, as a server of the dialect would send it.

Also its arithmetic of tokens: four characters each, and what a cache would have held.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any, Final

import msgspec
from msgspec import Struct

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
    connection behind the last."""

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
