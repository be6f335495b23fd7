"""Owns the running of one request: params to their type, the handler, the one reply.

Whatever a handler does, exactly one reply is made: its result, its error, −32800 when the client cancelled it, −32603 for
a fault of ours. Must not know transports; it gives bodies.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias
from uuid import uuid4

from msgspec import Raw, Struct, field

from refold_protocol.errors import RefoldError
from refold_protocol.rpc.envelope import Request, encode_error, encode_result
from refold_protocol.rpc.errors import ErrorObject, WireError, error_of, internal_error, is_ours, request_cancelled
from refold_protocol.rpc.initialize import InitializeParams
from refold_protocol.rpc.methods import METHODS, Method, decode_params

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
    methods: Mapping[str, Method] = field(default_factory=lambda: METHODS)


class Followed(Struct, frozen=True):
    """A handler's result with something that must begin only after the reply is on its way, like a subscription's
    events. `then` must not raise."""

    result: object
    then: Callable[[], None]


class AfterEvents(Struct, frozen=True):
    """A handler's result whose reply comes after all events that wait to be sent: it is the last word about them."""

    result: object


class Job:
    """A request that was taken and not answered yet. `cancel` works before, while and after it runs."""

    def __init__(self, request: Request, method: Method, handler: Handler) -> None:
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

    async def run(self, reply: Callable[[Job, bytes], None]) -> None:
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
