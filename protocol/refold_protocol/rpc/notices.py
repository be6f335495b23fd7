"""Owns what the daemon tells without being asked. Events are spliced in as their exact stored lines (`msgspec.Raw`)."""

from __future__ import annotations

from msgspec import Raw, Struct

from refold_protocol.ids import SessionId, WriterId
from refold_protocol.rpc.params import ProgressToken


class SessionEventsNotice(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """`session/events`: the next events of a subscription, in order; none when it only tells how far they are durable.

    `prev` is the seq sent before (the subscription's `after` in the first one), `tail` and `durable` the seqs of the last
    accepted and the last durable event. `caught_up` is true when nothing more waits; `phase` says what a running turn
    waits for. `writer` is absent for a session that nobody ever wrote.
    """

    subscription: int
    events: tuple[Raw, ...]
    prev: int
    tail: int
    durable: int
    writer: WriterId | None = None
    caught_up: bool = False
    phase: str | None = None


class SessionsChangedNotice(Struct, frozen=True, gc=False):
    """`sessions/changed`: the status of a session that this daemon writes is another one; for status lines and pickers.
    `status` is a word of Status, `tail` the seq of the session's last durable event. Of a session that another process
    writes and that is followed here it is told when that process is gone and left something open: `idle`, as views say."""

    session: SessionId
    status: str
    tail: int


class SessionTroubleNotice(Struct, frozen=True, gc=False, omit_defaults=True):
    """`session/trouble`: the log of a session cannot be written, or can again, or a subscription cannot go on. It is about
    the log and not in it. Also, once, that nobody stated the window of the session's model (`model.unconfigured`): then nothing
    of the session is metered or compacted.

    `kind` is an error kind, or `cleared` when a later commit succeeded; `durable` the seq of the last durable event (−1 for
    a session that is not there any more); `subscription` names the one that ends with this, where one does.
    """

    session: SessionId
    kind: str
    durable: int
    message: str
    subscription: int | None = None


class WorkDone(Struct, frozen=True, gc=False, omit_defaults=True):
    """How a turn goes on: `kind` is `begin`, `report` or `end`, as in LSP."""

    kind: str
    title: str | None = None
    message: str | None = None
    cancellable: bool | None = None


class ProgressNotice(Struct, frozen=True, gc=False):
    """`$/progress` of a turn that was started with a `workDoneToken`. What was begun has its end, whose `message` is how the
    turn ended; `withdrawn` or `closed` where the input still waited when it was taken back or its session was closed."""

    token: ProgressToken
    value: WorkDone


class LogTraceNotice(Struct, frozen=True, gc=False, omit_defaults=True):
    """`$/logTrace`: a request was answered; with the trace `verbose`, `verbose` holds its params as JSON text."""

    message: str
    verbose: str | None = None
