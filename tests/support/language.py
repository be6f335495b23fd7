"""Doubles of the language-server side: a client that notes what it is told, a library that notes what it is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import msgspec
from msgspec import Raw

from refold_server.lsp.selection_commands import ActionRequest
from refold_server.lsp.text_positions import OpenDocument


def raw(value: Any) -> Raw:
    """Give JSON as it would come."""
    return Raw(msgspec.json.encode(value))


def plain(value: object) -> Any:
    """Give what goes over the wire as Python has it."""
    return msgspec.json.decode(msgspec.json.encode(value))


class NotingClient:
    """A client: it notes notifications and requests, and answers each request by `answers`, by its method."""

    def __init__(self, **answers: Any) -> None:
        self.notified: list[tuple[str, Any]] = []
        self.asked: list[tuple[str, Any]] = []
        self.answers: dict[str, Any] = answers

    def notify(self, method: str, params: object = None) -> None:
        """Take a notification."""
        self.notified.append((method, plain(params)))

    async def request(self, method: str, params: object = None) -> Raw:
        """Answer a request, or raise what stands in `answers`."""
        self.asked.append((method, plain(params)))
        answer = self.answers[method.rpartition("/")[2]]
        if isinstance(answer, Exception):
            raise answer
        return raw(answer)


class NotingLibrary:
    """A library: it notes what it is asked, in order. `result` is the result of each request, or what it raises."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.result: Exception | Raw | Callable[[], Awaitable[object]] = Raw(b"null")
        self.open: tuple[OpenDocument, ...] = ()
        self.on_disk: list[OpenDocument] = []
        self.roots: tuple[str, ...] = ()

    def notify(self, method: str, params: Raw | None) -> None:
        """Take a notification."""
        self.seen.append(method)
        if method == "broken":
            raise ZeroDivisionError

    def request(self, method: str, params: Raw | None) -> Raw | Callable[[], Awaitable[object]]:
        """Take a request."""
        self.seen.append(method)
        if isinstance(self.result, Exception):
            raise self.result
        return self.result

    def documents(self) -> tuple[OpenDocument, ...]:
        """Give what a test says is open."""
        self.seen.append("documents")
        return self.open

    def saved(self, document: OpenDocument) -> None:
        """Note it."""
        self.on_disk.append(document)

    def folders(self) -> tuple[str, ...]:
        """Give what a test says."""
        return self.roots


class NotingFeatures:
    """What the daemon does for standard requests: it notes what was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[ActionRequest, tuple[OpenDocument, ...]]] = []
        self.ran: list[tuple[str, tuple[Any, ...]]] = []
        self.tokens: list[int | str | None] = []
        self.result: object = ()

    def actions(self, asked: ActionRequest, documents: tuple[OpenDocument, ...]) -> object:
        """Note and answer."""
        self.asked.append((asked, documents))
        if isinstance(self.result, Exception):
            raise self.result
        return self.result

    async def run(self, command: str, arguments: tuple[Any, ...], token: int | str | None = None) -> object:
        """Note and answer."""
        self.tokens.append(token)
        self.ran.append((command, arguments))
        return {"ran": command}


class Tasks:
    """Tasks that outlive a call, as the daemon's group keeps them."""

    def __init__(self) -> None:
        self.running: list[asyncio.Task[None]] = []

    def spawn(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start one."""
        self.running.append(asyncio.get_running_loop().create_task(work()))

    async def done(self) -> None:
        """Wait for all of them."""
        while self.running:
            await self.running.pop()
