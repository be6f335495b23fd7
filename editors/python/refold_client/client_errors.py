"""Owns what can go wrong for a client.

ClientError
├─ RpcError               the daemon answered with an error: branch on `kind`, else on `code`
├─ ConnectionEndedError   the daemon is gone
├─ UnclaimedMessageError  it sent something that nobody asked for: a fault of one of the two sides
├─ SubscriptionEndedError it cannot tell more of a session: deleted, or its log is damaged; branch on `kind`
├─ GapError               events are missing from a subscription: a fault of the daemon
└─ WriterChangedError     another process writes the session now: subscribe again from `cursor`
"""

from __future__ import annotations

from typing import Any, cast

from msgspec import Struct


class Cursor(Struct, frozen=True):
    """A place in a log from which one can go on in another connection: the seq of the last event that one has, and the
    writer under which one learnt of it."""

    session: str
    after: int
    writer: str | None


class ClientError(Exception):
    """Base of all errors of this package."""


class RpcError(ClientError):
    """An error reply. `kind` is one of the protocol's words where it is an error of refold's own, else None."""

    def __init__(self, error: Any) -> None:
        given = cast("dict[str, Any]", error if isinstance(error, dict) else {})
        super().__init__(f"{given.get('message', error)} ({given.get('code')})")
        self.code: int = given.get("code", 0)
        self.message: str = given.get("message", "")
        data: Any = given.get("data")
        members = cast("dict[str, Any]", data if isinstance(data, dict) else {})
        self.data: Any = data
        self.kind: str | None = members.get("kind")


class ConnectionEndedError(ClientError):
    """The daemon closed its output. What it was asked may or may not have happened: open the session and look."""


class UnclaimedMessageError(ClientError):
    """Messages that nobody claimed, in the order in which they came."""

    def __init__(self, messages: list[Any]) -> None:
        super().__init__("; ".join(str(message)[:500] for message in messages))
        self.messages = messages


class GapError(ClientError):
    """A subscription went on behind an event that never came."""


class SubscriptionEndedError(ClientError):
    """The daemon ended a subscription (`session/trouble`). `kind` is one of the protocol's words, as `session.unknown`."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{message} ({kind})")
        self.kind = kind


class WriterChangedError(ClientError):
    """What lies behind `cursor` was told by a writer that is gone: discard it and subscribe again from there."""

    def __init__(self, cursor: Cursor) -> None:
        super().__init__(f"another writer took over; go on after {cursor.after}")
        self.cursor = cursor
