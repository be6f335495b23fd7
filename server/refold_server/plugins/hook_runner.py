"""Handlers, run at one hook: in their order, within their time, with the failures of each contained.

A failure is attributed to the plugin whose handler it left; what a handler only lets through from `next()`, the provider's
error or a later plugin's, is not its own. What a handler gives is read and frozen before anybody sees it. A limit can only stop
code that waits for something; code that computes for ever, or swallows every cancellation, keeps the process to itself. Must
not know the log: failures are handed to `report`.

`llm/stream` is a chain of async generators around the provider. The request cannot be changed: what a wrapper hands to `next`
is what the live check compares with the log before a byte leaves. A failure of a wrapper ends the turn, because half of a reply
may be on its way already.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Sequence
from contextlib import aclosing, contextmanager
from inspect import isawaitable, iscoroutine
from math import inf
from time import perf_counter
from typing import Any, Final, Generic, TypeAlias, TypeVar, cast

import anyio
import anyio.lowlevel
from msgspec import Struct

from refold_protocol.errors import PluginError
from refold_protocol.json_text import repair_surrogates
from refold_protocol.session.messages import Chunk, FinishChunk
from refold_protocol.session.request import Request
from refold_server.plugins.hook_table import Outgoing
from refold_server.plugins.hook_values import frozen_chunk
from refold_server.plugins.plugin_registry import Registered
from refold_server.tools.tool_failure import Interrupted, first_line, is_own_fault

Value = TypeVar("Value")

MAX_MESSAGE: Final = 500
"""Characters of an exception's message that a failure keeps."""

_ENDED: Final = object()
_log: Final = logging.getLogger(__name__)


class HandlerLimit:
    """One handler's time, in seconds (None: as much as it takes). `spent` is what it used so far."""

    def __init__(self, seconds: float | None) -> None:
        self.spent = 0.0
        self._seconds = inf if seconds is None else seconds
        self._scope: anyio.CancelScope | None = None
        self._waits = 0
        self._paused_s = 0.0
        self._since = 0.0
        self._kept = 0.0

    @property
    def is_up(self) -> bool:
        """Whether nothing is left, as of the last time that `counting` was left."""
        return self.spent >= self._seconds

    @property
    def is_paused(self) -> bool:
        """Whether the time is not counted just now."""
        return self._waits > 0

    @contextmanager
    def counting(self) -> Generator[None]:
        """Count the time inside; stop what runs there when it is up. May be entered again and again, not twice at once."""
        began, paused = anyio.current_time(), self._paused_s
        try:
            with anyio.CancelScope(deadline=began + self._seconds - self.spent) as self._scope:
                yield
        finally:
            self.spent += anyio.current_time() - began - (self._paused_s - paused)

    @contextmanager
    def paused(self) -> Generator[None]:
        """Do not count the time inside; any number of these may overlap."""
        scope = self._scope
        if scope is None:
            yield
            return
        if self._waits == 0:
            self._since = anyio.current_time()
            self._kept = scope.deadline - self._since
            scope.deadline = inf
        self._waits += 1
        try:
            yield
        finally:
            self._waits -= 1
            if self._waits == 0:
                now = anyio.current_time()
                self._paused_s += now - self._since
                scope.deadline = now + self._kept


class PluginFailure(Struct, frozen=True, gc=False):
    """A plugin failed at a hook; `message` is a clause that says how."""

    plugin: str
    hook: str
    message: str

    @property
    def sentence(self) -> str:
        """The failure for people, with the way out."""
        way_out = "Correct it, or take it out of the configuration."
        return f"The plugin {self.plugin!r} failed at {self.hook}: {self.message}. {way_out}"


Report: TypeAlias = Callable[[PluginFailure], None]


class RestOfChain(Generic[Value]):
    """The rest of a waterfall; its method `ask` is what a handler knows as `next`. Remembers what it gave or raised."""

    def __init__(self, rest: Callable[[], Awaitable[Value]], limit: HandlerLimit, *, once: bool) -> None:
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
            with self._limit.paused():
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
    """Run a waterfall: each handler gets the payload and `next`. `accept` reads what one gives and raises for nonsense.

    `once` tells whether a handler may ask the rest a single time. Raises what `innermost` raises, and PluginError at hooks
    that do not go on without a plugin.
    """

    async def run(place: int) -> Value:
        if place == len(handlers):
            return await innermost()
        one = handlers[place]
        limit = HandlerLimit(one.limit_s)
        rest = RestOfChain(lambda: run(place + 1), limit, once=once)
        given = await _measured(
            one,
            limit,
            lambda: awaited(one.handler(payload, rest.ask)),
            lambda value: rest.accept(value, accept),
            rest.raised,
        )
        if not isinstance(given, PluginFailure):
            return given
        _settle(one, given, report)
        return await rest.without()

    return await run(0)


async def ask(one: Registered[Any], payload: object, accept: Callable[[Any], Value], report: Report) -> Value | PluginFailure:
    """Ask one handler of a serial hook and give what it decided, or how it failed (which was reported)."""
    given = await _measured(one, HandlerLimit(one.limit_s), lambda: awaited(one.handler(payload)), accept, ())
    if isinstance(given, PluginFailure):
        report(given)
    return given


async def attempt(
    one: Registered[Any],
    limit: HandlerLimit,
    call: Callable[[], Awaitable[object]],
    accept: Callable[[Any], Value],
    passing: Sequence[Exception],
) -> Value | PluginFailure:
    """Run plugin code within its limit and give what it gave, accepted, or how it failed.

    Raises those of `passing` that leave it, because they are not its own, and cancellation, whatever the code made of it:
    what it gives or raises after somebody cancelled the turn counts for nothing.
    """
    task = asyncio.current_task()
    given: Value | PluginFailure = late(one)
    try:
        with limit.counting():
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


def _settle(one: Registered[Any], failure: PluginFailure, report: Report) -> None:
    """Report a failure; raise PluginError at hooks that do not go on without a plugin: a guard that broke lets nothing pass."""
    report(failure)
    if one.hook.on_failure != "skip":
        raise PluginError(failure.sentence)


async def awaited(given: object) -> object:
    """Wait for what a handler gave when it was called. Raises TypeError for what cannot be waited for."""
    if not isawaitable(given):
        raise TypeError(f"its handler is no async function: it gave {type(given).__name__} at once")
    return await given


async def _measured(
    one: Registered[Any],
    limit: HandlerLimit,
    call: Callable[[], Awaitable[object]],
    accept: Callable[[Any], Value],
    passing: Sequence[Exception],
) -> Value | PluginFailure:
    given: Value | PluginFailure | None = None
    try:
        given = await attempt(one, limit, call, accept, passing)
        if limit.is_up:  # it kept the loop to itself: nobody could stop it in time
            given = late(one)
        return given
    finally:
        one.stats.add(limit.spent, failed=isinstance(given, PluginFailure))


def _finished(value: object) -> object:
    if iscoroutine(value):
        value.close()
        raise TypeError("it gave a coroutine: an await is missing")
    return value


def failure_of(one: Registered[Any], error: BaseException) -> PluginFailure:
    """Give the failure that an exception of a handler is."""
    said = first_line(error)
    line = f"{type(error).__name__}: {said}" if said else type(error).__name__
    return _failure(one, repair_surrogates(line[:MAX_MESSAGE]))


def _failure(one: Registered[Any], message: str) -> PluginFailure:
    return PluginFailure(one.plugin, one.hook.name, message)


def handler_name(handler: object) -> str:
    """Give what a handler is called: the name of its function, or of its class."""
    try:
        return repair_surrogates(str(getattr(handler, "__name__", type(handler).__name__)))
    except Interrupted:
        raise
    except BaseException:  # noqa: BLE001 - a plugin may be anybody's code, and its name is only told
        return type(handler).__name__


def late(one: Registered[Any]) -> PluginFailure:
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


def look(one: Registered[Any], seen: object) -> PluginFailure | None:
    """Show a handler something and give how it failed, None where it did not."""
    began = perf_counter()
    failure: PluginFailure | None = None
    try:
        given = one.handler(seen)
        if iscoroutine(given):
            given.close()
            raise TypeError("its handler is async, and nobody waits here")
    except Interrupted:
        raise
    except BaseException as error:  # noqa: BLE001 - what was seen stays as it is whatever a plugin thinks of it
        failure = failure_of(one, error)
    seconds = perf_counter() - began
    one.stats.add(seconds, failed=failure is not None)
    if one.stats.is_news(seconds):
        _log.warning(
            "The plugin %r took %d ms at %s, and every session waited for it. Let it do the work in a task of its own.",
            one.plugin,
            seconds * 1000,
            one.hook.name,
        )
    return failure


Send: TypeAlias = Callable[[Outgoing], AsyncGenerator[Chunk, None]]
"""The rest of the chain: sends what it is given and gives the chunks of the reply."""


def streaming(
    handlers: Sequence[Registered[Any]], outgoing: Outgoing, send: Send, report: Report
) -> AsyncGenerator[Chunk, None]:
    """Give the chunks of the reply to `outgoing`. Raises what `send` raises, and PluginError for a wrapper that fails."""
    if not handlers:
        return send(outgoing)
    first, *later = handlers
    return _wrapped(first, outgoing, lambda given: streaming(later, given, send, report), report)


class _Inner:
    """The rest of the chain as one wrapper sees it: its method `chunks` is what the wrapper knows as `next`. Asked once; its
    time is not the wrapper's, its errors are not the wrapper's fault."""

    def __init__(self, send: Send, limit: HandlerLimit) -> None:
        self._send = send
        self._limit = limit
        self._stream: AsyncGenerator[Chunk, None] | None = None
        self._last: Chunk | None = None
        self.raised: list[Exception] = []
        self.finished = False

    @property
    def asked(self) -> bool:
        """Whether the request went on its way."""
        return self._stream is not None

    def chunks(self, outgoing: Outgoing) -> AsyncIterator[Chunk]:
        """Send, and give the chunks of the reply. Raises TypeError when it is called again, or with something else."""
        if self._stream is not None:
            raise TypeError("next() was called a second time: a request is sent once")
        parts: tuple[object, object] = (getattr(outgoing, "request", None), getattr(outgoing, "body", None))
        if type(outgoing) is not Outgoing or not isinstance(parts[0], Request) or not isinstance(parts[1], bytes):
            raise TypeError("next() takes an Outgoing with a request and its bytes")
        self._stream = self._chunks(outgoing)
        return self._stream

    def gave(self, chunk: object) -> bool:
        """Tell whether a chunk is the last one of the reply, and has not been passed on before."""
        last, self._last = self._last, None
        return last is not None and chunk is last

    async def close(self) -> None:
        """Stop what the wrapper did not read to its end."""
        if self._stream is not None:
            await self._stream.aclose()

    async def _chunks(self, outgoing: Outgoing) -> AsyncGenerator[Chunk, None]:
        try:
            async with aclosing(self._send(outgoing)) as stream:
                while True:
                    with self._limit.paused():
                        chunk = await anext(stream, None)
                    if chunk is None:
                        return
                    self.finished = self.finished or type(chunk) is FinishChunk
                    self._last = chunk
                    yield chunk
        except Exception as error:
            self.raised.append(error)
            raise


class _Wrapper:
    """One wrapper at work on one reply."""

    def __init__(self, one: Registered[Any], outgoing: Outgoing, inner: _Inner, limit: HandlerLimit) -> None:
        self._one = one
        self._outgoing = outgoing
        self._inner = inner
        self._limit = limit
        self._stream: Any = None
        self._finished = False
        self.made = False
        """Whether the last chunk is the wrapper's own, and not one of the rest's that it passed on."""

    async def next(self) -> Chunk | PluginFailure | None:
        """Give the next chunk, None at the end, or how the wrapper failed. Raises what it let through from the rest."""
        chunk = await attempt(self._one, self._limit, self._advance, self._accept, self._inner.raised)
        if isinstance(chunk, PluginFailure):
            return chunk
        if self._limit.is_up:
            return late(self._one)
        if chunk is not _ENDED:
            self._finished = self._finished or type(chunk) is FinishChunk
            return cast("Chunk", chunk)
        if not self._finished and (self._inner.finished or not self._inner.asked):
            return _failure(self._one, "its reply ended without saying that it is complete")
        return None

    async def close(self) -> PluginFailure | None:
        """Let the wrapper clean up, within its time; give how it failed at that."""
        closed = await attempt(self._one, self._limit, self._aclose, lambda _: None, self._inner.raised)
        return closed if isinstance(closed, PluginFailure) else None

    async def _advance(self) -> object:
        if self._stream is None:
            self._stream = self._one.handler(self._outgoing, self._inner.chunks)
            if not hasattr(self._stream, "__anext__"):
                raise TypeError(f"its handler is no async generator: it gave {type(self._stream).__name__}")
        return await anext(self._stream, _ENDED)

    def _accept(self, chunk: object) -> object:
        self.made = chunk is not _ENDED and not self._inner.gave(chunk)
        return frozen_chunk(chunk) if self.made else chunk

    async def _aclose(self) -> None:
        if iscoroutine(self._stream):
            self._stream.close()
        elif hasattr(self._stream, "aclose"):
            await self._stream.aclose()


async def _wrapped(one: Registered[Any], outgoing: Outgoing, send: Send, report: Report) -> AsyncGenerator[Chunk, None]:
    limit = HandlerLimit(one.limit_s)
    inner = _Inner(send, limit)
    wrapper = _Wrapper(one, outgoing, inner, limit)
    failed = False
    try:
        while True:
            chunk = await wrapper.next()
            if isinstance(chunk, PluginFailure):
                failed = True
                _settle(one, chunk, report)
                return
            if chunk is None:
                return
            if wrapper.made:  # one that waits for nothing must not keep the loop to itself
                await anyio.lowlevel.checkpoint()
            yield chunk
    finally:
        one.stats.add(limit.spent, failed=failed)
        await _end(one, wrapper, inner, report)


async def _end(one: Registered[Any], wrapper: _Wrapper, inner: _Inner, report: Report) -> None:
    try:
        failure = await wrapper.close()
        if failure is not None:
            report(failure)
    finally:
        try:
            await inner.close()
        except RuntimeError as error:  # a task of the wrapper reads it still
            report(failure_of(one, error))
