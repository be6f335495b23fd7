"""Ways in which a connection can be ended from outside its stream: signals, and the death of the editor.

Costs nothing while nothing happens: a process is watched through a descriptor of the kernel, not by asking again and
again.

What comes in: it reads messages, puts them in order, and starts what answers them.

Every request gets exactly one reply, and handlers begin in the order of arrival, but for what can end something: replies to
us, `$/cancelRequest`, `turn/interrupt`, `shutdown` and `exit` neither wait behind a long queue nor until the client reads
its replies. Must not know what methods mean, but for the four that belong to the connection itself.

Connection from its first byte to its exit code.

Handlers never touch the transport; whoever wants to tell the client something uses `notify`, `request`, or, for events,
`events_room` and `send_events`. Must not know sessions. Never leaves a request without its reply, but for those that
the end of the connection overtakes.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Awaitable, Callable, Generator, Iterable
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Final, Literal, TypeAlias

from msgspec import Raw, Struct

from refold_protocol.errors import RefoldError
from refold_protocol.rpc.connection_state import InFlight, Lifecycle, Stage
from refold_protocol.rpc.envelope import (
    Invalid,
    Notification,
    Response,
    RpcRequest,
    decode_message,
    encode_error,
    encode_notification,
    encode_result,
    glimpse,
)
from refold_protocol.rpc.framing import Frame, FrameEvent, FrameReader, TooLarge, encode_frame
from refold_protocol.rpc.initialize import MAX_UNSENT_REPLIES, InitializeParams
from refold_protocol.rpc.initialize_reply import initialize_result
from refold_protocol.rpc.wire_errors import (
    ErrorObject,
    RpcId,
    WireError,
    error_of,
    frame_too_large,
    invalid_request,
    method_not_found,
    parse_error,
)
from refold_server.rpc.client_requests import PeerGoneError, PeerRequests
from refold_server.rpc.descriptors import Handover, open_ancestor
from refold_server.rpc.dispatch import RequestIntake, RunningRequest, Service, run_notification
from refold_server.rpc.method import decode_params
from refold_server.rpc.notices import SessionEventsNotice
from refold_server.rpc.stdio import Hooks, StdioTransport, Transport

EndReason: TypeAlias = Literal["exit", "inputEnded", "outputClosed", "parentGone", "brokenFrame", "terminated"]
"""Why a connection ended: the client said `exit`, closed its writing or its reading end, died, lost its framing; or a
signal came. `terminated` is the strongest: it replaces an ending that is under way."""

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""What ends the daemon in good order."""


@contextmanager
def signals_watched(end: Callable[[EndReason], None]) -> Generator[None]:
    """Call `end` on the running loop when one of SIGNALS comes. For the main thread only."""
    loop = asyncio.get_running_loop()
    with ExitStack() as stack:
        for number in SIGNALS:
            loop.add_signal_handler(number, end, "terminated")
            stack.callback(loop.remove_signal_handler, number)
        yield


def watch_process(descriptor: int, end: Callable[[EndReason], None]) -> Callable[[], None]:
    """Call `end` on the running loop when the process behind `descriptor` ends; give the function that stops watching.

    Takes over the descriptor, which `open_ancestor` gave."""
    loop = asyncio.get_running_loop()

    def gone() -> None:
        loop.remove_reader(descriptor)  # it stays readable for ever
        end("parentGone")

    def stop() -> None:
        loop.remove_reader(descriptor)
        os.close(descriptor)

    loop.add_reader(descriptor, gone)
    return stop


URGENT: Final = frozenset({"turn/interrupt"})
"""Methods whose requests do not wait; `shutdown` is the connection's own."""

URGENT_BELOW_REPLIES: Final = 2 * MAX_UNSENT_REPLIES
"""With so many replies unread a request waits, urgent or not: else a flood of them would be bounded by nothing."""

MAX_RUNNING: Final = 20_000
"""Requests of one client that run or wait at once, like `turn/wait`; each holds some kilobytes."""

logger = logging.getLogger(__name__)


class DaemonConnection(Struct, frozen=True):
    """The parts that the two directions of one connection share."""

    transport: Transport
    frames: FrameReader
    lifecycle: Lifecycle
    peers: PeerRequests
    end: Callable[[EndReason], None]
    initialized: Callable[[InitializeParams, Raw | None], None]


class Inbound:
    """The messages of one connection, on their way to the handlers of `service`."""

    def __init__(self, connection: DaemonConnection, service: Service, group: asyncio.TaskGroup) -> None:
        self._connection = connection
        self._service = service
        self._group = group
        self._jobs: InFlight[RunningRequest] = InFlight()
        self._running = 0
        self._intake = RequestIntake(connection.transport)
        self._stopped = False
        self._notified: set[asyncio.Task[None]] = set()
        self._quiet = asyncio.Event()
        self._quiet.set()

    def receive(self, data: bytes) -> None:
        """Take bytes of the stream; `b""` is its end."""
        if data:
            self.take(self._connection.frames.feed(data))
            return
        if self._connection.frames.mid_frame:
            logger.warning("the input ended inside a frame")
        self._connection.end("inputEnded")

    def take(self, events: Iterable[FrameEvent]) -> None:
        """Take what a frame reader gave."""
        for event in events:
            if self._stopped:
                return
            if isinstance(event, Frame):
                self._take_message(event.body)
            elif isinstance(event, TooLarge):
                self._take_too_large(event)
            else:
                self._send(encode_error(None, parse_error(event.reason)))
                self._connection.end("brokenFrame")
        self._intake.pump()

    def pump(self) -> None:
        """Go on with what waits: something has been sent."""
        self._intake.pump()

    def close(self) -> None:
        """Take nothing any more and forget what waits for its turn. What runs goes on."""
        self._stopped = True
        self._intake.close()
        for job in self._jobs.all():
            if not job.is_scheduled:
                self._jobs.finish(job.request.id)
        self._look_quiet()

    def stop(self) -> None:
        """Take nothing any more and cancel what runs."""
        self.close()
        for job in self._jobs.all():
            job.cancel()
        for task in self._notified:
            task.cancel()

    async def quiet(self) -> None:
        """Wait until no request is without its reply."""
        await self._quiet.wait()

    def _take_message(self, body: bytes) -> None:
        message = decode_message(body)
        match message:
            case RpcRequest():
                self._take_request(message, len(body))
            case Notification():
                self._take_notification(message, len(body))
            case Response():
                if not self._connection.peers.settle(message):
                    logger.info("a reply to no request of ours: id %r, %s", message.id, message.error or "a result")
            case Invalid():
                self._refuse(message.id, message.error, len(body))

    def _take_request(self, request: RpcRequest, size: int) -> None:
        refusal = self._connection.lifecycle.refusal(request.method)
        if refusal is not None:
            self._refuse(request.id, refusal, size)
        elif request.method == "initialize":
            self._initialize(request, size)
        elif request.method == "shutdown":
            self._connection.lifecycle.shut_down()
            self._intake.add(partial(self._send, encode_result(request.id, None)), size, urgent=True)
        else:
            self._take_call(request, size)

    def _take_call(self, request: RpcRequest, size: int) -> None:
        row = self._service.methods.get(request.method)
        handler = self._service.handlers.get(request.method)
        if row is None or handler is None or row.kind != "request":
            self._refuse(request.id, method_not_found(request.method), size)
            return
        job = RunningRequest(request, row, handler)
        if not self._jobs.begin(request.id, job):
            self._refuse(request.id, invalid_request(f"a request with the id {request.id!r} is in flight"), size)
            return
        self._quiet.clear()
        urgent = request.method in URGENT and self._connection.transport.unsent < URGENT_BELOW_REPLIES
        self._intake.add(partial(self._start, job), size, urgent=urgent)

    def _take_notification(self, notification: Notification, size: int) -> None:
        method = notification.method
        if not self._connection.lifecycle.takes(method):
            logger.info("notification %s dropped: not now", method)
        elif method == "exit":
            self._intake.add(self._exit, size, urgent=True)
        elif method == "$/cancelRequest":
            self._cancel(notification)
        else:
            self._intake.add(partial(self._start_notification, notification), size)

    def _exit(self) -> None:
        self.close()
        self._connection.end("exit")

    def _take_too_large(self, event: TooLarge) -> None:
        seen = glimpse(event.head)
        error = frame_too_large(event.length, self._connection.frames.limit)
        if not seen.is_reply:
            self._refuse(seen.id, error, len(event.head))
        elif not self._connection.peers.fail(seen.id, error):
            logger.warning("a reply of %d bytes was skipped", event.length)

    def _initialize(self, request: RpcRequest, size: int) -> None:
        try:
            params: InitializeParams = decode_params(self._service.methods["initialize"], request.params)
            self._connection.initialized(params, request.params)
        except (WireError, RefoldError) as error:  # the client is told, and may try again
            self._refuse(request.id, error_of(error, ""), size)
            return
        self._connection.lifecycle.initialized()
        self._intake.add(partial(self._send, encode_result(request.id, initialize_result(params))), size)

    def _cancel(self, notification: Notification) -> None:
        try:
            params = decode_params(self._service.methods["$/cancelRequest"], notification.params)
        except WireError as error:  # a notification has no reply
            logger.warning("%s", error)
            return
        job = self._jobs.get(params.id)
        if job is not None:
            job.cancel()
            if not self._intake.is_paused:
                self._start(job)  # one that has not begun is answered now, not when its turn comes

    def _refuse(self, request_id: RpcId | None, error: ErrorObject, size: int) -> None:
        self._intake.add(partial(self._send, encode_error(request_id, error)), size)

    def _start(self, job: RunningRequest) -> None:
        if job.is_scheduled:
            return
        job.is_scheduled = True
        self._running += 1
        if self._running <= MAX_RUNNING or job.method.name in URGENT:
            self._group.create_task(job.run(self._finish))
        else:
            reason = f"{MAX_RUNNING:,} requests wait for their replies; send it again when some of them have come"
            self._finish(job, encode_error(job.request.id, invalid_request(reason)))

    def _finish(self, job: RunningRequest, body: bytes) -> None:
        self._running -= 1
        self._jobs.finish(job.request.id)
        self._look_quiet()
        if job.after_events:
            self._connection.transport.send_event(encode_frame(body))
        else:
            self._send(body)

    def _look_quiet(self) -> None:
        if not self._jobs:
            self._quiet.set()

    def _start_notification(self, notification: Notification) -> None:
        row = self._service.methods.get(notification.method)
        handler = self._service.handlers.get(notification.method)
        if row is None or handler is None or row.kind != "notification":
            logger.info("notification %s ignored", notification.method)
            return
        task = self._group.create_task(run_notification(row, handler, notification.params))
        self._notified.add(task)
        task.add_done_callback(self._notified.discard)

    def _send(self, body: bytes) -> None:
        self._connection.transport.send(encode_frame(body))


GRACE_S: Final[dict[EndReason, float]] = {"inputEnded": 2.0, "exit": 1.0}
"""How long requests that were taken before the end may still run once `on_end` is done, in seconds. Not at all where
nobody can read their replies, or a signal says that it is urgent."""

DRAIN_S: Final = 2.0
"""How long the end waits for the client to read what it was sent, in seconds."""

OnEnd: TypeAlias = Callable[[EndReason], Awaitable[None]]
"""Ends what the connection kept alive. Cancelled and called again with `terminated` when a signal comes meanwhile."""


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
        """Ask the client and give its result as it came. Raises PeerError and PeerGoneError, after `shutdown` without asking.
        Cancelling cancels there."""
        if self._lifecycle.stage is Stage.SHUT_DOWN:
            raise PeerGoneError(f"{method} after shutdown")
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

        connection = DaemonConnection(self._transport, self._frames, self._lifecycle, self._peers, self.end, initialized)
        inbound = Inbound(connection, service, group)
        self._transport.start(Hooks(inbound.receive, inbound.pump, self._output_closed))
        if self._handover is not None:
            self._watch(self._handover.editor)
            inbound.take(self._handover.pending_writes)
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
