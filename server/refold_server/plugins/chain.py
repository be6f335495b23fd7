"""Owns the running of handlers at one seam: in their order, within their time, with the failures of each contained.

A failure is attributed to the plugin whose handler it left; what a handler only lets through from `next()`, the provider's
error or a later plugin's, is not its own. What a handler gives is copied and frozen before anybody sees it. Must not know
the log: failures are handed to `report`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from math import inf
from typing import Any, Generic, TypeAlias, TypeVar

import anyio
from msgspec import Struct

from refold_protocol.errors import PluginError
from refold_protocol.json_text import repair_surrogates
from refold_server.plugins.registry import Registered

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


class Limit:
    """The time that one handler may take. Stands still while the handler waits for what is not its own doing."""

    def __init__(self, seconds: float | None) -> None:
        self._left = inf if seconds is None else seconds
        self._scope: anyio.CancelScope | None = None
        self._paused = 0

    @property
    def over(self) -> bool:
        """Whether the handler was stopped because its time was up."""
        return self._scope is not None and self._scope.cancelled_caught

    @contextmanager
    def running(self) -> Generator[None]:
        """Count the time inside; stop what runs there when it is up."""
        began = anyio.current_time()
        with anyio.CancelScope(deadline=began + self._left) as self._scope:
            yield
        self._left = max(0.0, self._scope.deadline - anyio.current_time())

    @contextmanager
    def standing(self) -> Generator[None]:
        """Do not count the time inside."""
        scope = self._scope
        if scope is None or self._paused:
            yield
            return
        left = scope.deadline - anyio.current_time()
        scope.deadline = inf
        self._paused += 1
        try:
            yield
        finally:
            self._paused -= 1
            scope.deadline = anyio.current_time() + left


class Rest(Generic[Value]):
    """The rest of a waterfall, as `next()`: it can be asked once. Remembers what it gave or raised."""

    def __init__(self, rest: Callable[[], Awaitable[Value]], limit: Limit) -> None:
        self._rest = rest
        self._limit = limit
        self.asked = False
        self.given: tuple[Value] | None = None
        self.raised: BaseException | None = None

    async def __call__(self) -> Value:
        """Give what the rest of the chain gives. Raises what it raises, and TypeError when it is asked again."""
        if self.asked:
            raise TypeError("next() was called a second time")
        self.asked = True
        try:
            with self._limit.standing():
                value = await self._rest()
        except BaseException as error:
            self.raised = error
            raise
        self.given = (value,)
        return value

    async def without(self) -> Value:
        """Give what the chain gives without the handler. Raises what the rest raised."""
        if self.raised is not None:
            raise self.raised
        if self.given is not None:
            return self.given[0]
        if self.asked:  # the handler was stopped while it waited, or lost what it got
            raise PluginError("the rest of the chain was asked for and not waited for")
        return await self._rest()


async def waterfall(
    handlers: Sequence[Registered[Any]],
    payload: object,
    accept: Callable[[Any], Value],
    innermost: Callable[[], Awaitable[Value]],
    report: Report,
) -> Value:
    """Run a waterfall: each handler gets the payload and `next`. `accept` copies what one gives and raises for nonsense.

    Raises what `innermost` raises, and PluginError at seams that do not go on without a plugin.
    """

    async def run(place: int) -> Value:
        if place == len(handlers):
            return await innermost()
        one = handlers[place]
        limit = Limit(one.limit_s)
        rest = Rest(lambda: run(place + 1), limit)
        try:
            with limit.running():
                return accept(await one.handler(payload, rest))
            failure = _late(one)
        except Exception as error:  # a plugin may be anybody's code: its fault is told and contained
            if rest.raised is not None and (error is rest.raised or isinstance(error, PluginError)):
                raise
            failure = failure_of(one, error)
        report(failure)
        if one.seam.on_failure != "skip":
            raise PluginError(failure.sentence)
        return await rest.without()

    return await run(0)


async def ask(one: Registered[Any], payload: object, accept: Callable[[Any], Value], report: Report) -> Value | Failure:
    """Ask one handler of a serial seam and give what it decided, or how it failed (which was reported)."""
    limit = Limit(one.limit_s)
    try:
        with limit.running():
            return accept(await one.handler(payload))
        failure = _late(one)
    except Exception as error:  # noqa: BLE001 - as above
        failure = failure_of(one, error)
    report(failure)
    return failure


def failure_of(one: Registered[Any], error: BaseException) -> Failure:
    """Give the failure that an exception of a handler is. Never raises."""
    try:
        said = str(error)
    except Exception:  # noqa: BLE001 - an exception that cannot be printed is still only a plugin's fault
        said = ""
    line = repair_surrogates(said.strip().split("\n", 1)[0][:MAX_MESSAGE])
    name = type(error).__name__
    return Failure(one.plugin, one.seam.name, f"{name}: {line}" if line else name)


def _late(one: Registered[Any]) -> Failure:
    return Failure(one.plugin, one.seam.name, f"it took longer than {one.limit_s:g} s")
