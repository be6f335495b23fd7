"""The messages of a body behind each other, and the forms in which the strictest servers take them.

Chat templates (Gemma's, Mistral's and others) want user and assistant in turns, a user first, and no user after a tool.
Consecutive user messages become one by adding at the end of the last, which is therefore closed only when something else
follows; where a turn is missing, a fixed note takes it. What is written never changes afterwards.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import sha256
from itertools import chain
from typing import Any, Final

import msgspec
from msgspec import Struct

from refold_protocol.dialects.growing_body import BodyFragments
from refold_protocol.session.messages import ImageBlock, Message, ToolCallBlock, ToolResultBlock, text_of

NO_REPLY: Final = "(no reply)"
"""Stands for the assistant between a tool's result, or a user, and a user message that cannot join it."""

GO_ON: Final = "(go on)"
"""Stands for the user before an assistant message that has none before it."""

EMPTY: Final = "(empty)"
"""Stands for a text of blanks alone."""

SEPARATOR: Final = "\n\n"
"""What stands between the texts of two user messages that are sent as one."""


class Spoken(Struct, frozen=True):
    """A message of the wire without calls: its content is a text or a list of parts."""

    role: str
    content: Any


class Part(Struct, frozen=True, omit_defaults=True):
    """A part of a content that is no plain text."""

    type: str
    text: str | None = None
    image_url: dict[str, str] | None = None


class MessagesInTurn:
    """Writes messages of the wire into a growing body. With `in_turn` off each is written as it comes."""

    __slots__ = ("_fragments", "_in_turn", "_last")

    def __init__(self, fragments: BodyFragments, *, in_turn: bool) -> None:
        self._fragments = fragments
        self._in_turn = in_turn
        self._last = ""  # role of the last message; `text` or `parts` while a user message is open

    def add(self, wires: Iterable[Struct]) -> None:
        """Write messages behind what is there."""
        for wire in wires:
            if not self._in_turn:
                self._fragments.add([_json(wire)])
            elif isinstance(wire, Spoken) and wire.role != "assistant":
                self._speak(wire.content)
            else:
                role: str = getattr(wire, "role")  # noqa: B009 - a struct of the wire, whose role is its first member
                if role == "assistant" and self._last not in ("text", "parts", "tool"):
                    self._speak(GO_ON)
                self._fragments.add([_json(wire)])
                self._last = role

    def _speak(self, content: str | list[Part]) -> None:
        if isinstance(content, str):
            content = content if content.strip() else EMPTY
            if self._last == "text":
                self._fragments.grow(_json(SEPARATOR + content)[1:-1])
                return
            if self._last == "parts":
                self._fragments.grow(b"," + _json(Part("text", content)))
                return
        elif self._last == "parts":
            self._fragments.grow(b"".join(b"," + _json(part) for part in content))
            return
        if self._last in ("tool", "text"):
            self._fragments.add([_json(Spoken("assistant", NO_REPLY))])
        piece = _json(Spoken("user", content))
        self._fragments.add([piece[:-2]], piece[-2:])
        self._last = "text" if isinstance(content, str) else "parts"


def ends_open(latest_first: Iterable[Message], following: Message) -> int:
    """Count the bytes that close the last of the messages in turn, where `following` continues it; else 0."""
    earlier = iter(latest_first)
    last = next((message for message in earlier if _speaks(message)), None)
    if last is None or last.role == "assistant" or not _has_words(last) or following.role == "assistant" or _results(following):
        return 0
    return 2 if not _has_image(following) or _is_in_parts(chain((last,), earlier)) else 0


def _is_in_parts(latest_first: Iterable[Message]) -> bool:
    """Tell whether the user message that is open is a list of parts: one of those that were joined in it has an image."""
    for message in latest_first:
        if message.role == "assistant":
            if _speaks(message):
                return False
        elif _has_image(message):
            return True
        elif _results(message):
            return False
    return False


def safe_id(name: str) -> str:
    """Give the form of a call's id that every server takes: nine letters and digits, always the same for the same id."""
    if _NINE.fullmatch(name):
        return name
    number, letters = int.from_bytes(sha256(name.encode()).digest()[:8]), ""
    for _ in range(9):
        number, digit = divmod(number, 62)
        letters += _ALPHABET[digit]
    return letters


def safe_name(name: str) -> str:
    """Give a tool's name as every server takes it: at most 64 letters, digits, `_` and `-`."""
    return _UNSAFE.sub("_", name)[:64] or "_"


def _speaks(message: Message) -> bool:
    if message.role != "assistant":
        return True
    return bool(text_of(message.content).strip()) or any(isinstance(block, ToolCallBlock) for block in message.content)


def _has_words(message: Message) -> bool:
    results = _results(message)
    return results == 0 or results < len(message.content)


def _results(message: Message) -> int:
    return sum(isinstance(block, ToolResultBlock) for block in message.content)


def _has_image(message: Message) -> bool:
    return any(isinstance(block, ImageBlock) for block in message.content)


_NINE: Final = re.compile(r"[a-zA-Z0-9]{9}")
_UNSAFE: Final = re.compile(r"[^a-zA-Z0-9_-]")
_ALPHABET: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_json: Final = msgspec.json.Encoder().encode
