"""Owns one connection from its first byte to its exit code.

Handlers never touch the transport; whoever wants to tell the client something uses `notify`, `request`, or, for events,
`events_room` and `send_events`. Must not know sessions. Never leaves a request without its reply, but for those that
the end of the connection overtakes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import Final, TypeAlias

from msgspec import Raw

from refold_protocol.rpc.envelope import encode_notification
from refold_protocol.rpc.framing import FrameReader, encode_frame
from refold_protocol.rpc.initialize import InitializeParams
from refold_protocol.rpc.lifecycle import Lifecycle
from refold_protocol.rpc.notices import SessionEventsNotice
from refold_server.rpc.ancestors import open_ancestor
from refold_server.rpc.dispatch import Service
from refold_server.rpc.endings import EndReason, signals_watched, watch_process
from refold_server.rpc.handover import Handover
from refold_server.rpc.inbound import Connection, Inbound
from refold_server.rpc.peer import PeerRequests
from refold_server.rpc.transport import Hooks, StdioTransport, Transport

GRACE_S: Final[dict[EndReason, float]] = {"inputEnded": 2.0, "exit": 1.0}
"""How long requests that were taken before the end may still run once `on_end` is done, in seconds. Not at all where
nobody can read their replies, or a signal says that it is urgent."""

DRAIN_S: Final = 2.0
"""How long the end waits for the client to read what it was sent, in seconds."""

OnEnd: TypeAlias = Callable[[EndReason], Awaitable[None]]
"""Ends what the connection kept alive. Cancelled and called again with `terminated` when a signal comes meanwhile."""

logger = logging.getLogger(__name__)


def stdio_endpoint(handover: Handover) -> Endpoint:
    """Give the endpoint that goes on with a connection where the boot left it."""
    return Endpoint(StdioTransport(handover.descriptors), handover)


class Endpoint:
    """Serves one connection. With a `handover` it is the process's own: it goes on where the boot left it, and ends at a
    signal and at the death of the editor too."""

    def __init__(self, transport: Transport, handover: Handover | None = None) -> None:
        self._transport = transport
        self._handover = handover
        self._frames = FrameReader() if handover is None else handover.frames
        self._lifecycle = Lifecycle() if handover is None else handover.lifecycle
        self._peers = PeerRequests(self._send)
        self._stack = ExitStack()
        self._over: asyncio.Future[EndReason]
        self._terminated: asyncio.Event

    async def run(self, service: Service, on_end: OnEnd) -> int:
        """Serve until the connection ends, then call `on_end`, and give the exit code. Call it once."""
        self._over = asyncio.get_running_loop().create_future()
        self._terminated = asyncio.Event()
        with self._stack:
            if self._handover is not None:
                self._stack.enter_context(signals_watched(self.end))
            async with asyncio.TaskGroup() as group:
                inbound = self._start(service, group)
                await self._end(await self._over, inbound, on_end, group)
        return self._lifecycle.exit_code

    def end(self, reason: EndReason) -> None:
        """Begin to end the connection. Idempotent; `terminated` takes over from a weaker reason."""
        if not self._over.done():
            self._over.set_result(reason)
        elif reason == "terminated":
            self._terminated.set()

    def notify(self, method: str, params: object = None) -> None:
        """Send a notification other than `session/events`."""
        self._send(encode_notification(method, params))

    def notify_after_events(self, method: str, params: object = None) -> None:
        """Send a notification after all events that wait to be sent: it is the last word about them."""
        self._transport.send_event(encode_frame(encode_notification(method, params)))

    async def request(self, method: str, params: object = None) -> Raw:
        """Ask the client and give its result as it came. Raises PeerError and PeerGoneError. Cancelling cancels there."""
        return await self._peers.request(method, params)

    @property
    def unsent(self) -> tuple[int, int]:
        """The messages, and their bytes, that the client has not been given yet; events do not count."""
        return self._transport.unsent, self._transport.unsent_bytes

    async def events_room(self) -> bool:
        """Wait until a notification of events may be sent; False when the connection is over. Events that wait stay in
        the log: read them after this returned, not before."""
        return await self._transport.events_room()

    def send_events(self, notice: SessionEventsNotice) -> None:
        """Send a `session/events`, behind all replies that wait."""
        self._transport.send_event(encode_frame(encode_notification("session/events", notice)))

    def _start(self, service: Service, group: asyncio.TaskGroup) -> Inbound:
        def initialized(params: InitializeParams, raw: Raw | None) -> None:
            service.initialized(params, raw)
            if self._handover is not None:
                self._watch(open_ancestor(params.process_id))

        connection = Connection(self._transport, self._frames, self._lifecycle, self._peers, self.end, initialized)
        inbound = Inbound(connection, service, group)
        self._transport.start(Hooks(inbound.receive, inbound.pump, self._output_closed))
        if self._handover is not None:
            self._watch(self._handover.editor)
            inbound.take(self._handover.backlog)
            if self._handover.ended:
                inbound.receive(b"")
        return inbound

    def _watch(self, editor: int | None) -> None:
        if editor is not None:
            self._stack.callback(watch_process(editor, self.end))

    async def _end(self, reason: EndReason, inbound: Inbound, on_end: OnEnd, group: asyncio.TaskGroup) -> None:
        logger.info("the connection ends: %s", reason)
        self._peers.gone()
        if reason not in GRACE_S:
            inbound.stop()
        ending = group.create_task(_contained(on_end, reason))
        if not await self._ends_first(ending):
            ending.cancel()
            reason = "terminated"
            ending = group.create_task(_contained(on_end, reason))
        await asyncio.wait({ending})
        await _at_most(GRACE_S.get(reason, 0), inbound.quiet())
        inbound.stop()
        await inbound.quiet()
        await _at_most(DRAIN_S, self._transport.drained())
        self._lifecycle.over()
        self._transport.close()

    async def _ends_first(self, ending: asyncio.Task[None]) -> bool:
        """Wait for `ending` or for a signal; False when the signal came first."""
        signalled = asyncio.create_task(self._terminated.wait())
        try:
            await asyncio.wait({ending, signalled}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            signalled.cancel()
        return ending.done()

    def _output_closed(self) -> None:
        self.end("outputClosed")

    def _send(self, body: bytes) -> None:
        self._transport.send(encode_frame(body))


async def _contained(on_end: OnEnd, reason: EndReason) -> None:
    try:
        await on_end(reason)
    except Exception:
        logger.exception("ending (%s) failed", reason)


async def _at_most(seconds: float, waiting: Awaitable[None]) -> None:
    try:
        async with asyncio.timeout(seconds):
            await waiting
    except TimeoutError:
        logger.warning("the end goes on without waiting any longer")
