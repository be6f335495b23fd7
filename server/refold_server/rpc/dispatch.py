"""Requests of one connection: the order in which they are taken, and the one reply that each gets.

Whatever a handler does, exactly one reply is made: its result, its error, −32800 when the client cancelled it, −32603 for a
fault of ours. Messages that wait for their turn are bounded in bytes. They are taken in short bursts, and not at all while the
client leaves its replies unread; what is urgent does not wait. When too much waits, reading stops until there is room again.
Must not know transports; it gives bodies.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias
from uuid import uuid4

from msgspec import Raw, Struct

from refold_protocol.errors import RefoldError
from refold_protocol.rpc.envelope import RpcRequest, encode_error, encode_result
from refold_protocol.rpc.initialize import MAX_UNSENT_REPLIES, MAX_UNSENT_REPLY_BYTES, InitializeParams
from refold_protocol.rpc.wire_errors import (
    ErrorObject,
    WireError,
    bad_param,
    error_of,
    internal_error,
    is_ours,
    request_cancelled,
)
from refold_server.rpc.method import Method, TextInput, decode_params
from refold_server.rpc.stdio import Transport

Handler: TypeAlias = Callable[[Any], Awaitable[object]]
"""Takes the params as their type (None where the table has none) and gives the result: a struct, a Raw, or None."""

Initialized: TypeAlias = Callable[[InitializeParams, Raw | None], None]
"""Told the params of `initialize`, typed and as they came, before it is answered and before any other handler runs. A
RefoldError answers it instead. Not called where the boot has answered: then the handover has the params."""

logger = logging.getLogger(__name__)


class Service(Struct, frozen=True):
    """What a connection serves: handlers by method name, and who is told of `initialize`."""

    handlers: Mapping[str, Handler]
    initialized: Initialized
    methods: Mapping[str, Method]


class Followed(Struct, frozen=True):
    """A handler's result with something that must begin only after the reply is on its way, like a subscription's
    events. `then` must not raise."""

    result: object
    then: Callable[[], None]


class AfterEvents(Struct, frozen=True):
    """A handler's result whose reply comes after all events that wait to be sent: it is the last word about them."""

    result: object


class RunningRequest:
    """A request that was taken and not answered yet. `cancel` works before, while and after it runs."""

    def __init__(self, request: RpcRequest, method: Method, handler: Handler) -> None:
        self.request = request
        self.method = method
        self.handler = handler
        self.cancelled = False
        self.after_events = False
        """Whether its reply comes after the events that wait."""
        self.is_scheduled = False
        """Whether it will run, so that `run` makes the reply."""
        self._task: asyncio.Task[None] | None = None

    def cancel(self) -> None:
        """Cancel the request, once. A job that has not begun is answered when it is run."""
        if not self.cancelled:
            self.cancelled = True
            if self._task is not None:
                self._task.cancel()

    async def run(self, reply: Callable[[RunningRequest, bytes], None]) -> None:
        """Run the handler and call `reply` exactly once."""
        self._task = asyncio.current_task()
        body, then = encode_error(self.request.id, internal_error("none")), None
        try:
            body, then = await self._answer()
        except asyncio.CancelledError:
            ours = None if self.cancelled else internal_error(_logged(self.method))
            body = self._error(ours or request_cancelled(self.method.name))
            raise
        finally:
            self._task = None
            reply(self, body)
            if then is not None:
                then()

    async def _answer(self) -> tuple[bytes, Callable[[], None] | None]:
        if self.cancelled:
            return self._error(request_cancelled(self.method.name)), None
        try:
            result = await self.handler(decode_params(self.method, self.request.params))
            if isinstance(result, Followed):
                return encode_result(self.request.id, result.result), result.then
            if isinstance(result, AfterEvents):
                self.after_events = True
                result = result.result
            return encode_result(self.request.id, result), None
        except (WireError, RefoldError) as error:  # what a handler says on purpose
            return self._error(error_of(error, _logged(self.method) if is_ours(error) else "")), None
        except (Exception, SystemExit):  # noqa: BLE001  # a fault of ours must cost one reply, not the connection
            return self._error(internal_error(_logged(self.method))), None

    def _error(self, error: ErrorObject) -> bytes:
        return encode_error(self.request.id, error)


async def run_notification(method: Method, handler: Handler, params: Raw | None) -> None:
    """Run the handler of a notification. What goes wrong is logged: there is nobody to tell."""
    try:
        await handler(decode_params(method, params))
    except WireError as error:
        logger.warning("%s", error)
    except (Exception, SystemExit):
        logger.exception("%s", method.name)


def _logged(method: Method) -> str:
    """Log the exception that is being handled; give the id under which the log has it."""
    diagnostics = uuid4().hex[:12]
    logger.exception("%s: %s", diagnostics, method.name)
    return diagnostics


Step: TypeAlias = Callable[[], None]
"""What is done when a message's turn comes: starting a handler, sending an error. Short; never raises."""

BURST: Final = 16
"""So many steps are taken before the loop turns to other things, and to the replies that they caused."""

MESSAGE_COST: Final = 1024
"""What a waiting message costs beside its bytes, roughly."""

FULL_BYTES: Final = 64 * 1024 * 1024
"""Above this nothing more is read."""


class RequestIntake:
    """Steps in order of arrival. `pump` is called after each `add`, and by the transport when something was sent."""

    def __init__(self, transport: Transport, full_bytes: int = FULL_BYTES) -> None:
        self._transport = transport
        self._full_bytes = full_bytes
        self._waiting: deque[tuple[Step, int]] = deque()
        self._bytes = 0
        self._taken = 0  # in this turn of the loop
        self._reading = True
        self._closed = False

    @property
    def is_paused(self) -> bool:
        """Whether so many replies lie unread that only what is urgent is served."""
        transport = self._transport
        return transport.unsent >= MAX_UNSENT_REPLIES or transport.unsent_bytes >= MAX_UNSENT_REPLY_BYTES

    def add(self, step: Step, size: int, *, urgent: bool = False) -> None:
        """Put a step, which holds `size` bytes, behind the others. One that is urgent is taken now: after a burst of those
        that wait, so that a client that sends a few messages together finds them taken in their order, and before the rest."""
        if urgent:
            self._take()
            step()
            return
        self._waiting.append((step, size + MESSAGE_COST))
        self._bytes += size + MESSAGE_COST

    def pump(self) -> None:
        """Go on with what waits, as far as that is allowed now."""
        self._take()
        if self._waiting and not self._taken:
            self._transport.watch()
        self._balance()

    def close(self) -> None:
        """Forget what waits, and read nothing any more."""
        self._closed = True
        self._waiting.clear()
        self._bytes = 0
        self._transport.pause()

    def _pump_on(self) -> None:
        self._taken = 0
        self.pump()

    def _take(self) -> None:
        """Take steps: not more than BURST in one turn of the loop."""
        before = self._taken
        while self._waiting and not self.is_paused and self._taken < BURST:
            self._taken += 1
            step, cost = self._waiting.popleft()
            self._bytes -= cost
            step()
        if self._taken and not before:
            asyncio.get_running_loop().call_soon(self._pump_on)

    def _balance(self) -> None:
        full = self._bytes >= self._full_bytes
        if full == self._reading and not self._closed:
            self._reading = not full
            (self._transport.pause if full else self._transport.resume)()


def refuse_blank(method: str, content: Iterable[TextInput]) -> None:
    """Raise WireError (−32602) for content without visible text: strict providers refuse such messages for ever."""
    if not any(block.text.strip() for block in content):
        raise WireError(bad_param(method, "$.content", "some of the text must not be blank"))
