"""Owns following one session's log: the protocol's rules of delivery, as an asynchronous iterator of events.

Events come in order and once: what comes twice is dropped, what is missing is an error. Keeps no history: only the cursor,
and the events that the caller has not taken yet. Must not know how messages travel.

Owns a listener's queue of notifications that only inform. Unbounded: whoever listens reads, or stops listening.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import anyio

from refold_client.client_errors import ClientError, Cursor, GapError, WriterChangedError


class Subscription:
    """One subscription. Iterate over it to get events, oldest first, for as long as the connection lives.

    `last` is the seq of the last event that the iterator gave; `tail` and `durable` are what the daemon last told of the
    log; `caught_up` says that it had nothing more at that time; `phase` what a running turn waits for.
    """

    def __init__(
        self,
        session: str,
        after: int,
        reply: dict[str, Any],
        stop: Callable[[int], Awaitable[Any]],
        *,
        whole: bool = True,
    ) -> None:
        self.id: int = reply["subscription"]
        self.session = session
        self.writer: str | None = reply.get("writer")
        self.tail: int = reply["tail"]
        self.durable: int = reply["durable"]
        self.last = after
        self.caught_up = False
        self.phase: str | None = None
        self._received = after
        self._whole = whole  # every event is sent, so a missing number is a fault
        self._events: deque[dict[str, Any]] = deque()
        self._stop = stop
        self._failure: ClientError | None = None
        self._stopped = False
        self._news = anyio.Event()

    @property
    def cursor(self) -> Cursor:
        """Where to go on after the daemon was lost: behind the last event that was given and is known to be durable.
        Events behind it that were given already must be discarded: their numbers may come to mean others."""
        return Cursor(self.session, min(self.last, self.durable), self.writer)

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> dict[str, Any]:
        """Give the next event. Raises what ended the subscription, once the events before that were given."""
        while not self._events:
            if self._failure is not None:
                raise self._failure
            if self._stopped:
                raise StopAsyncIteration
            await self._news.wait()
        event = self._events.popleft()
        self.last = event["seq"]
        return event

    async def wait_durable(self, seq: int) -> None:
        """Wait until the daemon has told that the event `seq` is durable. Raises what ended the subscription."""
        while self.durable < seq:
            if self._failure is not None:
                raise self._failure
            await self._news.wait()

    async def stop(self) -> None:
        """End the subscription; events that were not taken yet are dropped. Idempotent."""
        if not self._stopped:
            self._stopped = True
            self._events.clear()
            self._wake()
            await self._stop(self.id)

    def take(self, notice: dict[str, Any]) -> None:
        """Take a `session/events`. Called by the connection, in the order of arrival."""
        if self._failure is not None or self._stopped:
            return
        writer = notice.get("writer")
        if self.writer is not None and writer != self.writer:
            self.fail(WriterChangedError(Cursor(self.session, min(self._received, self.durable), self.writer)))
            return
        self.writer = writer
        if notice["prev"] > self._received:
            self.fail(GapError(f"prev is {notice['prev']}, the last event that came is {self._received}"))
            return
        for event in notice["events"]:
            seq: int = event["seq"]
            if self._whole and seq > self._received + 1:
                self.fail(GapError(f"event {seq} follows event {self._received}"))
                return
            if seq > self._received:
                self._received = seq
                self._events.append(event)
        self.tail, self.durable = notice["tail"], notice["durable"]
        self.caught_up, self.phase = notice.get("caughtUp", False), notice.get("phase")
        self._wake()

    def fail(self, error: ClientError) -> None:
        """End with an error, which the iterator raises behind the events that came before."""
        if self._failure is None:
            self._failure = error
            self._wake()

    def _wake(self) -> None:
        self._news.set()
        self._news = anyio.Event()


class Notices:
    """An asynchronous iterator over params, in the order of arrival; it ends with the connection."""

    def __init__(self) -> None:
        self._waiting: deque[Any] = deque()
        self._ended = False
        self._changed = anyio.Event()

    def __aiter__(self) -> Notices:
        return self

    async def __anext__(self) -> Any:
        while not self._waiting:
            if self._ended:
                raise StopAsyncIteration
            await self._changed.wait()
        return self._waiting.popleft()

    def take(self, params: Any) -> None:
        """Take a notification's params."""
        self._waiting.append(params)
        self._wake()

    def end(self) -> None:
        """Say that nothing more comes."""
        self._ended = True
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()
