"""Owns the seam between the daemon and the library that speaks LSP: what is asked of it, and what it asks of the daemon.

`adapter.py` has the real one. All calls belong to the event loop's thread. Must not know pygls.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from msgspec import Raw, Struct

from refold_protocol.rpc.documents import Range
from refold_server.lsp.documents import OpenDocument


class Deferred(Struct, frozen=True):
    """A result that is still to be made; whoever sent the request runs it, in the request's own task."""

    run: Callable[[], Awaitable[object]]


class Asked(Struct, frozen=True):
    """What a client asked when it asked for code actions: where, which kinds (None: all), and what it reports there."""

    uri: str
    range: Range
    only: tuple[str, ...] | None = None
    diagnostics: tuple[str, ...] = ()


class Features(Protocol):
    """What the daemon does for standard requests."""

    def actions(self, asked: Asked, documents: tuple[OpenDocument, ...]) -> object:
        """Give the code actions for what was asked of the open `documents`, in order, as they go over the wire."""
        ...

    async def run(self, command: str, arguments: tuple[Any, ...]) -> object:
        """Run a command and give its result. Raises WireError and RefoldError."""
        ...


class ClientSide(Protocol):
    """The client, as the library may address it."""

    def notify(self, method: str, params: object = None) -> None:
        """Send a notification."""
        ...

    async def request(self, method: str, params: object = None) -> Raw:
        """Ask and give the result as it came. Raises PeerError and PeerGoneError."""
        ...


class Mounted(Protocol):
    """The library, ready to serve."""

    def notify(self, method: str, params: Raw | None) -> None:
        """Take a notification. What is wrong with it is logged."""
        ...

    def request(self, method: str, params: Raw | None) -> object:
        """Take a request and give its result: what can be encoded, or a Deferred. Raises WireError."""
        ...

    def documents(self) -> tuple[OpenDocument, ...]:
        """Give the open documents as of now."""
        ...

    def saved(self, document: OpenDocument) -> None:
        """Remember that the text of this version was written to disk."""
        ...

    def folders(self) -> tuple[str, ...]:
        """Give the paths of the workspace's folders, in the client's order."""
        ...
