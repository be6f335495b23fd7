"""Owns what comes in: it reads messages, puts them in order, and starts what answers them.

Every request gets exactly one reply, and handlers begin in the order of arrival, but for what can end something: replies to
us, `$/cancelRequest`, `turn/interrupt`, `shutdown` and `exit` neither wait behind a long queue nor until the client reads
its replies. Must not know what methods mean, but for the four that belong to the connection itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from msgspec import Raw, Struct

from refold_protocol.errors import RefoldError
from refold_protocol.rpc.envelope import Invalid, Notification, Request, Response, decode_message, encode_error, encode_result
from refold_protocol.rpc.errors import (
    ErrorObject,
    RpcId,
    WireError,
    error_of,
    frame_too_large,
    invalid_request,
    method_not_found,
    parse_error,
)
from refold_protocol.rpc.framing import Frame, FrameEvent, FrameReader, TooLarge, encode_frame
from refold_protocol.rpc.initialize import MAX_UNSENT_REPLIES, InitializeParams, initialize_result
from refold_protocol.rpc.lifecycle import Lifecycle
from refold_protocol.rpc.malformed import glimpse
from refold_protocol.rpc.methods import decode_params
from refold_protocol.rpc.pending import InFlight
from refold_server.rpc.dispatch import Job, Service, run_notification
from refold_server.rpc.endings import EndReason
from refold_server.rpc.intake import Intake
from refold_server.rpc.peer import PeerRequests
from refold_server.rpc.transport import Transport

URGENT: Final = frozenset({"turn/interrupt"})
"""Methods whose requests do not wait; `shutdown` is the connection's own."""

URGENT_BELOW_REPLIES: Final = 2 * MAX_UNSENT_REPLIES
"""With so many replies unread a request waits, urgent or not: else a flood of them would be bounded by nothing."""

logger = logging.getLogger(__name__)


class Connection(Struct, frozen=True):
    """The parts that the two directions of one connection share."""

    transport: Transport
    frames: FrameReader
    lifecycle: Lifecycle
    peers: PeerRequests
    end: Callable[[EndReason], None]
    initialized: Callable[[InitializeParams, Raw | None], None]


class Inbound:
    """The messages of one connection, on their way to the handlers of `service`."""

    def __init__(self, connection: Connection, service: Service, group: asyncio.TaskGroup) -> None:
        self._connection = connection
        self._service = service
        self._group = group
        self._jobs: InFlight[Job] = InFlight()
        self._intake = Intake(connection.transport)
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
            case Request():
                self._take_request(message, len(body))
            case Notification():
                self._take_notification(message, len(body))
            case Response():
                if not self._connection.peers.settle(message):
                    logger.info("a reply to no request of ours: id %r, %s", message.id, message.error or "a result")
            case Invalid():
                self._refuse(message.id, message.error, len(body))

    def _take_request(self, request: Request, size: int) -> None:
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

    def _take_call(self, request: Request, size: int) -> None:
        row = self._service.methods.get(request.method)
        handler = self._service.handlers.get(request.method)
        if row is None or handler is None or row.kind != "request":
            self._refuse(request.id, method_not_found(request.method), size)
            return
        job = Job(request, row, handler)
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

    def _initialize(self, request: Request, size: int) -> None:
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

    def _start(self, job: Job) -> None:
        if not job.is_scheduled:
            job.is_scheduled = True
            self._group.create_task(job.run(self._finish))

    def _finish(self, job: Job, body: bytes) -> None:
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
