"""Owns params and results of what happens to a session as a whole: it is forked, deleted, archived. Shapes only."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from refold_protocol.ids import SessionId
from refold_protocol.rpc.params import Seq


class SessionForkParams(Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """`session/fork`: the new session begins with the events 0…`at` of `session`; with all of them where there is no `at`.
    Of a session that another process writes, what is on disk can be forked. `title` is the new session's."""

    session: SessionId
    at: Seq | None = None
    title: Annotated[str, Meta(min_length=1, max_length=200)] | None = None


class SessionForkResult(Struct, frozen=True, gc=False):
    """`session/fork`: the new session, which nobody has open, and the seq of its last event."""

    session: SessionId
    tail: int


class SessionDeleteParams(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """`session/delete`: for good. Forks of the session keep what they inherited."""

    session: SessionId


class SessionArchiveParams(Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """`session/archive`: whether the session is left out of lists that do not ask for archived ones."""

    session: SessionId
    archived: bool = True
