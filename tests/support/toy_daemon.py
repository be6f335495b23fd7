"""Daemon that does nothing useful: handlers that echo, wait, fail and misbehave, for tests of the connection.

`python -m tests.support.toy_daemon` serves on standard input and output through the real boot, transport and endpoint.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import warnings
from typing import Any

from msgspec import Raw, Struct

from refold_protocol.errors import SessionBusyError
from refold_protocol.rpc.initialize import InitializeParams
from refold_server import boot
from refold_server.rpc.connection import Endpoint, EndReason, stdio_endpoint
from refold_server.rpc.descriptors import Handover
from refold_server.rpc.dispatch import AfterEvents, Followed, Handler, Service
from refold_server.rpc.event_methods import (
    EventSubscribeParams,
    EventSubscribeResult,
    EventUnsubscribeParams,
    EventUnsubscribeResult,
)
from refold_server.rpc.method import Method
from refold_server.rpc.method_table import METHODS
from refold_server.rpc.notices import SessionEventsNotice


class Text(Struct, frozen=True, forbid_unknown_fields=True):
    """Params of the toy methods that take a text."""

    text: str = ""
    times: int = 1


class Toy:
    """The handlers, and what they saw: what began, in order, how many waits were cancelled, what was notified."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.began: list[str] = []
        self.cancelled = 0
        self.notes: list[str] = []
        self.initialized: list[InitializeParams] = []
        self.ended: list[EndReason] = []
        self.released = asyncio.Event()
        self._publishers: list[asyncio.Task[None]] = []

    def service(self) -> Service:
        """Give what the endpoint serves."""
        requests: dict[str, tuple[Handler, Any]] = {
            "toy/echo": (self.echo, Raw),
            "toy/typed": (self.typed, Text),
            "toy/wait": (self.wait, None),
            "toy/release": (self.release, None),
            "toy/seen": (self.seen, None),
            "toy/stubborn": (self.stubborn, None),
            "toy/busy": (self.busy, None),
            "toy/bug": (self.bug, None),
            "toy/leave": (self.leave, None),
            "toy/lost": (self.lost, None),
            "toy/large": (self.large, Text),
            "toy/unspeakable": (self.unspeakable, None),
            "toy/stray": (self.stray, None),
            "toy/followed": (self.followed, None),
            "toy/child_descriptors": (self.child_descriptors, None),
            "toy/ask": (self.ask, None),
        }
        rows = {name: Method(name, "to-daemon", "request", params, Raw, "") for name, (_, params) in requests.items()}
        note = Method("toy/note", "to-daemon", "notification", Text, None, "")
        handlers = {name: handler for name, (handler, _) in requests.items()}
        handlers |= {"toy/note": self.note, "event/subscribe": self.subscribe, "turn/interrupt": self.release}
        handlers |= {"event/unsubscribe": self.unsubscribe}
        return Service(handlers, self.initialize, METHODS | rows | {"toy/note": note})

    def initialize(self, params: InitializeParams, raw: Raw | None) -> None:
        """Told of initialize."""
        self.initialized.append(params)

    async def end(self, reason: EndReason) -> None:
        """Told of the end; says so on standard error."""
        self.ended.append(reason)
        os.write(2, f"end: {reason}\n".encode())

    async def echo(self, params: Raw) -> Raw:
        """Give the params back, byte for byte."""
        return params

    async def typed(self, params: Text) -> Text:
        """Give the params back by way of their type."""
        self.began.append(params.text)
        return params

    async def wait(self, params: None) -> str:
        """Wait for `toy/release`."""
        self.began.append("wait")
        try:
            await self.released.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            os.write(2, b"cancelled\n")
            raise
        return "released"

    async def release(self, params: Any) -> None:
        """Let all that wait go on. Serves as `turn/interrupt` too."""
        self.released.set()

    async def seen(self, params: None) -> dict[str, Any]:
        """Tell what was seen."""
        return {"began": self.began, "cancelled": self.cancelled, "notes": self.notes}

    async def stubborn(self, params: None) -> str:
        """Finish although cancelled."""
        try:
            await self.released.wait()
        except asyncio.CancelledError:
            return "finished all the same"
        return "released"

    async def busy(self, params: None) -> None:
        """Fail on purpose."""
        raise SessionBusyError("a turn runs", session="s1", seq=4)

    async def bug(self, params: None) -> None:
        """Fail by mistake."""
        raise ZeroDivisionError("secret detail")

    async def leave(self, params: None) -> None:
        """Try to end the process."""
        raise SystemExit(3)

    async def lost(self, params: None) -> None:
        """End cancelled although nobody cancelled it."""
        raise asyncio.CancelledError

    async def large(self, params: Text) -> str:
        """Give a text as large as asked for."""
        return params.text * params.times

    async def unspeakable(self, params: None) -> object:
        """Give what is not JSON."""
        return {"value": object()}

    async def stray(self, params: None) -> None:
        """Write to standard output in every way that a tool or a library might."""
        print("stray print")
        os.write(1, b"stray write\n")
        warnings.warn("stray warning", stacklevel=1)
        subprocess.run(["sh", "-c", "echo stray child; cat"], check=True)  # noqa: ASYNC221
        if sys.__stdout__ is not None:
            sys.__stdout__.write("stray original\n")
            sys.__stdout__.flush()

    async def followed(self, params: None) -> Followed:
        """Answer, and notify behind the answer."""
        return Followed("first", lambda: self.endpoint.notify("toy/second"))

    async def child_descriptors(self, params: None) -> list[list[str]]:
        """Give the descriptors of a child that inherits all it can, each with what it is."""
        program = "import os; [print(n, os.readlink(f'/proc/self/fd/{n}')) for n in os.listdir('/proc/self/fd')[:-1]]"
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, check=True, capture_output=False, stdout=subprocess.PIPE, close_fds=False)  # noqa: ASYNC221
        return [line.split(" ", 1) for line in done.stdout.decode().split("\n")[:-1]]

    async def ask(self, params: None) -> Raw:
        """Ask the client."""
        return await self.endpoint.request("client/ask", {"question": 1})

    async def note(self, params: Text) -> None:
        """Take a notification; one without a text never ends."""
        self.notes.append(params.text)
        if not params.text:
            await asyncio.Event().wait()

    async def subscribe(self, params: EventSubscribeParams) -> Followed:
        """Answer, then send ten events in notifications of two, as a publisher would."""
        after = params.after if isinstance(params.after, int) else 9

        def publish() -> None:
            self._publishers.append(asyncio.create_task(self._publish(after)))

        return Followed(EventSubscribeResult(1, 9, 9, params.writer), publish)

    async def unsubscribe(self, params: EventUnsubscribeParams) -> AfterEvents:
        """Answer after all events that were sent."""
        return AfterEvents(EventUnsubscribeResult(9))

    async def _publish(self, after: int) -> None:
        while after < 9 and await self.endpoint.events_room():
            lines = tuple(Raw(b'{"type":"toy","seq":%d}' % seq) for seq in range(after + 1, min(after + 3, 10)))
            caught_up = after + len(lines) == 9
            self.endpoint.send_events(SessionEventsNotice(1, lines, after, 9, 9, None, caught_up))
            after += len(lines)


def serve(handover: Handover) -> int:
    """Serve a connection: the daemon that the boot hands over to."""
    return asyncio.run(_serve(handover))


async def _serve(handover: Handover) -> int:
    endpoint = stdio_endpoint(handover)
    toy = Toy(endpoint)
    if handover.initialize is not None:
        toy.initialize(handover.initialize, handover.raw_params)
    return await endpoint.run(toy.service(), toy.end)


if __name__ == "__main__":
    sys.exit(boot.serve(sys.argv[1:], "tests.support.toy_daemon:serve"))
