"""What the daemon tells without being asked. Events are spliced in as their exact stored lines (`msgspec.Raw`).

`sessions/changed`: the status words of the sessions that this daemon writes, for status lines and pickers.

A word is told once what it follows from is durable, and only when it is another one than before. `broken` is told at
once: it is about the log, not in it.

`session/trouble` for the sessions that a connection has open for writing: what is wrong with a log, and that it is
well again.

It is told once for each kind, not for every attempt. Subscriptions that cannot go on are told of in `event_methods.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Raw, Struct

from refold_protocol.errors import LogError
from refold_protocol.ids import SessionId, WriterId
from refold_protocol.session.events import AssistantMessage, Event, TurnStart
from refold_server.rpc.method import ProgressToken, notification_row
from refold_server.sessions.session import Session


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


Notify = Callable[[str, object], None]
"""Sends a notification."""

MOVERS: Final = frozenset(
    {"input/accepted", "turn/start", "turn/end", "approval/asked", "approval/decided", "compact/start", "compact/end"}
)
"""Event types that can change the status word."""


METHODS: Final = (
    notification_row("session/events", "to-client", SessionEventsNotice, "The next events of a subscription."),
    notification_row("sessions/changed", "to-client", SessionsChangedNotice, "A session's status is another one."),
    notification_row("session/trouble", "to-client", SessionTroubleNotice, "What is wrong with a session's log."),
    notification_row("$/progress", "to-client", ProgressNotice, "How a turn with a `workDoneToken` goes on."),
    notification_row("$/logTrace", "to-client", LogTraceNotice, "What the daemon did, for a client that asked."),
)
"""The methods of this family."""


class StatusNotices:
    """Watches sessions for one connection."""

    def __init__(self, notify: Notify) -> None:
        self._notify = notify

    def watch(self, session: Session) -> None:
        """Tell this session's status from now on, until its handle is closed."""
        handle = session.session_log.handle
        told = "idle"
        moved = -1

        def accepted(events: Sequence[Event]) -> None:
            nonlocal moved
            for event in events:
                if event.type in MOVERS:
                    moved = event.seq

        def look() -> None:
            nonlocal told
            word = session.status().status
            if word != told and (word == "broken" or moved <= handle.durable):
                told = word
                self._notify("sessions/changed", SessionsChangedNotice(session.id, word, handle.durable))

        handle.observe(accepted)
        handle.watch_durable(lambda _: look())
        handle.watch_trouble(lambda _: look())
        session.turns.watch(look)


class TroubleNotices:
    """Watches sessions for one connection."""

    def __init__(self, notify: Notify) -> None:
        self._notify = notify

    def watch(self, session: Session) -> None:
        """Tell this session's troubles from now on, until its handle is closed."""
        handle = session.session_log.handle
        told: str | None = None
        named = False

        def look(trouble: LogError | None) -> None:
            nonlocal told
            kind = None if trouble is None else trouble.error_kind
            if kind == told:
                return
            told = kind
            message = "The log can be written again." if trouble is None else trouble.message
            self._notify("session/trouble", SessionTroubleNotice(session.id, kind or "cleared", handle.durable, message))

        def accepted(events: Sequence[Event]) -> None:
            nonlocal named
            for event in events:
                cut = session.instance.model.cut_off(event.seq) if isinstance(event.data, AssistantMessage) else None
                if cut is not None:
                    self._notify("session/trouble", SessionTroubleNotice(session.id, "prompt.cut", handle.durable, cut))
            if named or not any(isinstance(event.data, TurnStart) for event in events):
                return
            message = session.instance.model.unmetered()
            if message is not None:
                named = True
                self._notify("session/trouble", SessionTroubleNotice(session.id, "model.unconfigured", handle.durable, message))

        handle.watch_trouble(look)
        handle.observe(accepted)
