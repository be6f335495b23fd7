"""Owns the mounting of the library that speaks LSP: its import in a thread, and the order of messages until it is there.

Whatever is asked of the library happens in the order in which it was asked, before and after it is there; nothing else of the
daemon waits for it. Where it cannot be mounted, requests are refused and there are no documents. Must not know pygls.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar
from uuid import uuid4

from msgspec import Raw

from refold_protocol.rpc.errors import WireError, internal_error, request_cancelled
from refold_server.lsp.documents import OpenDocument
from refold_server.lsp.mounted import Deferred, Mounted

BURST: Final = 16
"""So many steps that waited are taken before the loop turns to other things."""

LATER_S: Final = 0.2
"""Seconds by which the import waits for other things that clients do first, unless somebody waits for an answer: Python's
threads share one interpreter, so everything would take twice as long meanwhile."""

T = TypeVar("T")

logger = logging.getLogger(__name__)


class Wing:
    """The language-server side of one connection. `mount` makes the library; it is called in a thread."""

    def __init__(self, mount: Callable[[], Mounted]) -> None:
        self._mount = mount
        self._waiting: deque[Callable[[], None]] = deque()
        self._mounted: Mounted | None = None
        self._failure: str | None = None
        self._is_settled = False
        self._loop: asyncio.AbstractEventLoop
        self._later: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to mount, now or a little later; call it on the event loop, once. No end of a connection waits for an import:
        its thread ends with the process."""
        self._loop = asyncio.get_running_loop()
        self._later = self._loop.call_later(LATER_S, self._begin)

    def notify(self, method: str, params: Raw | None) -> None:
        """Take a notification."""

        def step() -> None:
            try:
                if self._mounted is not None:
                    self._mounted.notify(method, params)
            except Exception:  # a fault here or in the library costs this notification: there is nobody to tell
                logger.exception("%s", method)

        self._take_turn(step)

    async def request(self, method: str, params: Raw | None) -> object:
        """Take a request and give its result. Raises WireError, and what a command raises."""

        def serve(mounted: Mounted | None) -> object:
            if mounted is None:
                raise WireError(request_cancelled(method) if self._failure is None else internal_error(self._failure))
            return mounted.request(method, params)

        result = await self.in_turn(serve)
        return await result.run() if isinstance(result, Deferred) else result

    async def documents(self) -> tuple[OpenDocument, ...]:
        """Give the open documents as of now, when everything that the client said before was taken in."""
        return await self.in_turn(lambda mounted: () if mounted is None else mounted.documents())

    async def in_turn(self, ask: Callable[[Mounted | None], T]) -> T:
        """Call `ask` when everything before it was done, and give what it gives; with None where nothing is mounted, because
        that failed or the connection ended before."""
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def step() -> None:
            if answer.done():  # whoever asked was cancelled
                return
            try:
                answer.set_result(ask(self._mounted))
            except Exception as error:  # noqa: BLE001  # it belongs to whoever asked
                answer.set_exception(error)

        self._take_turn(step)
        self._begin()
        return await answer

    def close(self) -> None:
        """Wait for the library no longer: whoever asked something of it is answered now."""
        self._later = None
        self._settle(None, None)

    def _take_turn(self, step: Callable[[], None]) -> None:
        if self._is_settled and not self._waiting:
            step()
        else:
            self._waiting.append(step)

    def _begin(self) -> None:
        if self._later is not None:
            self._later.cancel()
            self._later = None
            threading.Thread(target=self._load, name="refold-lsp", daemon=True).start()

    def _load(self) -> None:
        mounted, failure = None, None
        try:
            mounted = self._mount()
        except Exception:  # an installation without a working pygls: the rest of the daemon is as good as before
            failure = uuid4().hex[:12]
            logger.exception("%s: the language-server side could not be loaded", failure)
        with suppress(RuntimeError):  # the loop is closed: the connection is over
            self._loop.call_soon_threadsafe(self._settle, mounted, failure)

    def _settle(self, mounted: Mounted | None, failure: str | None) -> None:
        if not self._is_settled:
            self._is_settled, self._mounted, self._failure = True, mounted, failure
            self._catch_up()

    def _catch_up(self) -> None:
        for _ in range(min(BURST, len(self._waiting))):
            self._waiting[0]()  # it stays the first while it is done: what it causes comes behind the others
            self._waiting.popleft()
        if self._waiting:
            self._loop.call_soon(self._catch_up)
