"""Owns the running of handlers at one seam: in their order, within their time, with the failures of each contained.

A failure is attributed to the plugin whose handler it left; what a handler only lets through from `next()`, the provider's
error or a later plugin's, is not its own. What a handler gives is copied and frozen before anybody sees it. Must not know
the log: failures are handed to `report`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from inspect import isawaitable, iscoroutine
from typing import Any, Generic, TypeAlias, TypeVar, cast

import anyio
import anyio.lowlevel
from msgspec import Struct

from refold_protocol.errors import PluginError
from refold_protocol.json_text import repair_surrogates
from refold_server.plugins.limit import Limit
from refold_server.plugins.registry import Registered
from refold_server.tools.tool_failure import first_line, is_own_fault

Value = TypeVar("Value")

MAX_MESSAGE = 500
"""Characters of an exception's message that a failure keeps."""


class Failure(Struct, frozen=True, gc=False):
    """A plugin failed at a seam; `message` is a clause that says how."""

    plugin: str
    seam: str
    message: str

    @property
    def sentence(self) -> str:
        """The failure for people, with the way out."""
        way_out = "Correct it, or take it out of the configuration."
        return f"The plugin {self.plugin!r} failed at {self.seam}: {self.message}. {way_out}"


Report: TypeAlias = Callable[[Failure], None]


class Rest(Generic[Value]):
    """The rest of a waterfall; its method `ask` is what a handler knows as `next`. Remembers what it gave or raised."""

    def __init__(self, rest: Callable[[], Awaitable[Value]], limit: Limit, *, once: bool) -> None:
        self._rest = rest
        self._limit = limit
        self._once = once
        self._asked = False
        self._open = 0
        self.given: tuple[Value] | None = None
        self.raised: list[Exception] = []

    async def ask(self) -> Value:
        """Give what the rest of the chain gives. Raises what it raises, and TypeError when it is asked again and may not."""
        if self._asked and self._once:
            raise TypeError("next() was called a second time")
        self._asked = True
        self._open += 1
        try:
            with self._limit.standing():
                value = await self._rest()
        except Exception as error:
            self.raised.append(error)
            raise
        finally:
            self._open -= 1
        self.given = (value,)
        return value

    def accept(self, value: object, accept: Callable[[Any], Value]) -> Value:
        """Give what a handler gave, accepted; what it only passed on was accepted before."""
        if self._open:
            raise TypeError("it did not wait for next(), which it called")
        if self.given is not None and value is self.given[0]:
            return self.given[0]
        return accept(value)

    async def without(self) -> Value:
        """Give what the chain gives without the handler. The rest runs once more where the handler cut it off."""
        return await self._rest() if self.given is None else self.given[0]


async def waterfall(
    handlers: Sequence[Registered[Any]],
    payload: object,
    accept: Callable[[Any], Value],
    innermost: Callable[[], Awaitable[Value]],
    report: Report,
    *,
    once: bool = True,
) -> Value:
    """Run a waterfall: each handler gets the payload and `next`. `accept` copies what one gives and raises for nonsense.

    `once` tells whether a handler may ask the rest a single time. Raises what `innermost` raises, and PluginError at seams
    that do not go on without a plugin.
    """

    async def run(place: int) -> Value:
        if place == len(handlers):
            return await innermost()
        one = handlers[place]
        limit = Limit(one.limit_s)
        rest = Rest(lambda: run(place + 1), limit, once=once)
        given = await _measured(
            one,
            limit,
            lambda: awaited(one.handler(payload, rest.ask)),
            lambda value: rest.accept(value, accept),
            rest.raised,
        )
        if not isinstance(given, Failure):
            return given
        report(given)
        if one.seam.on_failure != "skip":
            raise PluginError(given.sentence)
        return await rest.without()

    return await run(0)


async def ask(one: Registered[Any], payload: object, accept: Callable[[Any], Value], report: Report) -> Value | Failure:
    """Ask one handler of a serial seam and give what it decided, or how it failed (which was reported)."""
    given = await _measured(one, Limit(one.limit_s), lambda: awaited(one.handler(payload)), accept, ())
    if isinstance(given, Failure):
        report(given)
    return given


async def attempt(
    one: Registered[Any],
    limit: Limit,
    call: Callable[[], Awaitable[object]],
    accept: Callable[[Any], Value],
    passing: Sequence[Exception],
) -> Value | Failure:
    """Run plugin code within its limit and give what it gave, accepted, or how it failed.

    Raises those of `passing` that leave it, because they are not its own, and cancellation, whatever the code made of it:
    what it gives or raises after somebody cancelled the turn counts for nothing.
    """
    task = asyncio.current_task()
    given: Value | Failure = late(one)
    try:
        with limit.running():
            given = accept(_finished(await call()))
    except BaseException as error:  # a plugin may be anybody's code, and `sys.exit()` in it must end no daemon
        if not is_own_fault(error, task):
            raise
        passed = _passed(error, passing)
        if passed is not None:
            raise passed from None
        stray = isinstance(error, asyncio.CancelledError)
        given = _failure(one, "it was cancelled, though nobody cancelled the turn") if stray else failure_of(one, error)
    await anyio.lowlevel.checkpoint_if_cancelled()
    return given


async def awaited(given: object) -> object:
    """Wait for what a handler gave when it was called. Raises TypeError for what cannot be waited for."""
    if not isawaitable(given):
        raise TypeError(f"its handler is no async function: it gave {type(given).__name__} at once")
    return await given


async def _measured(
    one: Registered[Any],
    limit: Limit,
    call: Callable[[], Awaitable[object]],
    accept: Callable[[Any], Value],
    passing: Sequence[Exception],
) -> Value | Failure:
    given: Value | Failure | None = None
    try:
        given = await attempt(one, limit, call, accept, passing)
        if limit.is_up:  # it kept the loop to itself: nobody could stop it in time
            given = late(one)
        return given
    finally:
        one.tally.add(limit.spent, failed=isinstance(given, Failure))


def _finished(value: object) -> object:
    if iscoroutine(value):
        value.close()
        raise TypeError("it gave a coroutine: an await is missing")
    return value


def failure_of(one: Registered[Any], error: BaseException) -> Failure:
    """Give the failure that an exception of a handler is."""
    said = first_line(error)
    line = f"{type(error).__name__}: {said}" if said else type(error).__name__
    return _failure(one, repair_surrogates(line[:MAX_MESSAGE]))


def _failure(one: Registered[Any], message: str) -> Failure:
    return Failure(one.plugin, one.seam.name, message)


def late(one: Registered[Any]) -> Failure:
    """Give the failure of a handler whose time is up."""
    return _failure(one, f"it took longer than {one.limit_s:g} s")


def _passed(error: BaseException, passing: Sequence[Exception]) -> Exception | None:
    """Give the one of `passing` that `error` is, or that is all there is in the group of a task group around `next()`."""
    for own in passing:
        if error is own:
            return own
    if isinstance(error, BaseExceptionGroup):
        inner = [_passed(one, passing) for one in cast("BaseExceptionGroup[BaseException]", error).exceptions]
        return None if None in inner else inner[0]
    return None
