"""Owns what is said of a session beside its log: the record, where a fork comes from, what a new session is made with.

Data only. `interface.py`, which uses all but `Parent`, names them again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from msgspec import Struct

from refold_protocol.errors import RefoldError
from refold_protocol.ids import SessionId, WriterId
from refold_protocol.session.summary import Summary

RecentCursor: TypeAlias = tuple[int, int]
"""A place in the list of recent sessions: last activity (epoch ms) and the session's number. Opaque to callers."""

Progress: TypeAlias = Callable[[int, int], None]
"""Told now and then how much of a long work is done, and how much there is in all."""


def no_progress(done: int, whole: int) -> None:
    """Tell nobody."""


class Parent(Struct, frozen=True, gc=False):
    """Where a fork comes from: the parent's session, the last inherited seq, and the digest of that event in hex."""

    session: SessionId
    at: int
    digest: str


class NewSession(Struct, frozen=True, gc=False, omit_defaults=True):
    """What a session is created with. `cwd` is an absolute path, `created_at` Unix epoch ms."""

    id: SessionId
    cwd: str
    created_at: int


class SessionRecord(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """The record beside a log, as of one moment.

    `tail` is the seq of its last event (−1 for none), `head_digest` the chain's digest there in hex. `writers` has a row
    `(writer, first seq)` for each writer that put events into the log. `summary` is a cache, all else is data.
    """

    id: SessionId
    cwd: str
    created_at: int
    tail: int
    head_digest: str
    writers: tuple[tuple[WriterId, int], ...]
    summary: Summary
    parent: Parent | None = None
    archived: bool = False


class Recount(Struct, frozen=True):
    """What rebuilding the catalogue did: sessions counted, summaries that were wrong, wrong or missing places in the list
    of recent sessions, and why which sessions were passed over."""

    sessions: int
    changed: int
    misplaced: int
    skipped: tuple[RefoldError, ...]
