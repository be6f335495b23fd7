"""Ways for a handler to go wrong, by name, each made into a handler for any seam; and a session that meets every seam."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import anyio
import anyio.lowlevel
from msgspec import Struct

from refold_protocol.json_text import JsonText
from refold_protocol.session.messages import CallConfig, Chunk, Message, TextBlock, TextDelta, ToolSchema
from refold_server.plugins.hook_table import (
    ASSEMBLE,
    EXECUTE,
    POST_EXECUTE,
    PRE_EXECUTE,
    PRE_STEP,
    PROMPT_SUBMIT,
    REQUEST,
    SESSION_PREFIX,
    STREAM,
    SUMMARISE,
    TURN_STOP,
    Accept,
    Assembled,
    Block,
    Context,
    Deny,
    GoOn,
    Hook,
    Stop,
    Submit,
    Summary,
)
from refold_server.tools.tool_runner import ToolAnswer


class UnprintableError(Exception):
    """An exception that fails when it is printed."""

    def __str__(self) -> str:
        raise ValueError("no words")


class HardToPrintError(BaseException):
    """An exception that wants an end of the process when it is printed."""

    def __str__(self) -> str:
        raise KeyboardInterrupt


class OddError(BaseException):
    """Something that ordinary handlers of exceptions let through."""


def deep(levels: int = 100_000) -> object:
    """A list in a list in a list."""
    value: list[object] = []
    for _ in range(levels):
        value = [value]
    return value


def circle() -> object:
    """A list that holds itself."""
    value: list[object] = []
    value.append(value)
    return value


class Alike(Struct, frozen=True):
    """A struct that has nothing to do with any seam."""

    content: str = "x"


NAN: Final = JsonText('{"a":NaN}')
HALF: Final = "\ud800"

ANY_NONSENSE: Final[dict[str, Callable[[], object]]] = {
    "a number": lambda: 7,
    "a text": lambda: "yes",
    "bytes": lambda: b"yes",
    "True": lambda: True,
    "a mapping": lambda: {"reason": 1},
    "a list of nonsense": lambda: [object()],
    "an exception": lambda: ValueError("given, not raised"),
    "a class": lambda: Submit,
    "another struct": Alike,
    "a deep list": deep,
    "a circle": circle,
    "a coroutine": lambda: anyio.lowlevel.checkpoint(),
    "a generator": lambda: (one for one in ()),
}
"""Values that no seam takes."""

OWN_NONSENSE: Final[dict[Hook[Any], tuple[Callable[[], object], ...]]] = {
    PROMPT_SUBMIT: (
        lambda: Submit((TextBlock(HALF),)),
        lambda: Submit([7]),  # type: ignore[arg-type]
        lambda: Submit(deep()),  # type: ignore[arg-type]
        lambda: Block(HALF),
        lambda: Block(7),  # type: ignore[arg-type]
        lambda: Deny("wrong seam"),
    ),
    ASSEMBLE: (
        lambda: None,
        lambda: Assembled(HALF, ()),
        lambda: Assembled("x", (ToolSchema("t", "d", NAN),)),
        lambda: Assembled("x", (ToolSchema("t", "d", JsonText("[" * 300 + "]" * 300)),)),
        lambda: Assembled(None, ()),  # type: ignore[arg-type]
    ),
    SESSION_PREFIX: (
        lambda: None,
        lambda: [Message("user", (TextBlock(HALF),))],
        lambda: [Message("user", deep())],  # type: ignore[arg-type]
        lambda: [Message("user", "text")],  # type: ignore[arg-type]
    ),
    PRE_STEP: (lambda: [Context((TextBlock(HALF),))], lambda: Context((TextBlock("not in a list"),)), lambda: ["text"]),
    REQUEST: (
        lambda: None,
        lambda: CallConfig("scripted", "m", "chat-completions", extra=NAN),
        lambda: CallConfig("scripted", HALF, "chat-completions"),
        lambda: CallConfig("scripted", "m", "chat-completions", max_tokens=10**400),
        lambda: CallConfig("scripted", "m", "chat-completions", temperature=float("inf")),
    ),
    STREAM: (lambda: None, lambda: TextDelta(0, HALF), lambda: TextDelta("0", "x"), lambda: Message("user", ())),  # type: ignore[arg-type]
    SUMMARISE: (
        lambda: None,
        lambda: "text",
        lambda: Summary(" ", "m"),
        lambda: Summary("text", ""),
        lambda: Summary(HALF, "m"),
        lambda: Summary(deep(), "m"),  # type: ignore[arg-type]
    ),
    PRE_EXECUTE: (lambda: Deny(HALF), lambda: Deny(""), lambda: Deny(None)),  # type: ignore[arg-type]
    EXECUTE: (
        lambda: None,
        lambda: ToolAnswer((TextBlock(HALF),), False),
        lambda: ToolAnswer((TextBlock("x"),), False, meta=NAN),
        lambda: ToolAnswer((TextBlock("x"),), "no"),  # type: ignore[arg-type]
        lambda: ToolAnswer(deep(), False),  # type: ignore[arg-type]
    ),
    POST_EXECUTE: (
        lambda: Accept(ToolAnswer((TextBlock(HALF),), False)),
        lambda: Accept(ToolAnswer((TextBlock("x"),), False, meta=NAN)),
        lambda: Accept(context="text"),  # type: ignore[arg-type]
        lambda: Accept(7),  # type: ignore[arg-type]
    ),
    TURN_STOP: (lambda: Stop(HALF), lambda: GoOn((Context((TextBlock(HALF),)),)), lambda: GoOn(deep())),  # type: ignore[arg-type]
}
"""Values that only look like those of a seam."""


async def _cancelled_by_nobody() -> object:
    future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    future.cancel()
    return await future


async def _exits() -> object:
    raise SystemExit(3)


async def _interrupts() -> object:
    raise KeyboardInterrupt


async def _hard_to_print() -> object:
    raise HardToPrintError


async def _exits_in_a_group() -> object:
    raise BaseExceptionGroup("two", [SystemExit(3), KeyboardInterrupt()])


async def _generator_exit() -> object:
    raise GeneratorExit


async def _odd() -> object:
    raise OddError("odd")


async def _raises() -> object:
    raise ValueError("broken\non two lines")


async def _speechless() -> object:
    raise UnprintableError


async def _half() -> object:
    raise ValueError(HALF)


RAISING: Final[dict[str, Callable[[], Awaitable[object]]]] = {
    "an exception": _raises,
    "an exception without words": _speechless,
    "an exception with half a character": _half,
    "an exit": _exits,
    "an interrupt": _interrupts,
    "an exit and an interrupt": _exits_in_a_group,
    "an exception that interrupts when it is printed": _hard_to_print,
    "the exit of a generator": _generator_exit,
    "something odd": _odd,
    "a cancellation by nobody": _cancelled_by_nobody,
}
"""What a handler can raise."""


def handler(seam: Hook[Any], fault: Callable[[], Awaitable[object]], *, after: bool = False) -> Any:
    """A handler for a seam that does `fault`, before it asks for the rest or after, and gives what that gives."""
    if seam is STREAM:
        return _stream_handler(fault, after=after)
    if seam.mode == "waterfall":

        async def around(payload: object, rest: Callable[[], Awaitable[object]]) -> object:
            if after:
                await rest()
            return await fault()

        return around

    async def decide(payload: object) -> object:
        return await fault()

    return decide


def _stream_handler(fault: Callable[[], Awaitable[object]], *, after: bool) -> Any:
    async def wrap(outgoing: Any, rest: Callable[[Any], Any]) -> Any:
        if after:
            chunks: list[Chunk] = [chunk async for chunk in rest(outgoing)]
            for chunk in chunks[:-1]:
                yield chunk
        yield await fault()

    return wrap


def giving(value: Callable[[], object]) -> Callable[[], Awaitable[object]]:
    """A fault that is a wrong value."""

    async def give() -> object:
        return value()

    return give
