"""Owns the results of the methods, as the wire has them. `initialize.py` has that of `initialize`.

Stored events stand in results as `msgspec.Raw`: their exact lines are spliced in and never written again. Absent and null
differ: what a view does not have is absent. Never refuses unknown fields: a client may be older than its daemon.
"""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, Raw, Struct, UnsetType

from refold_protocol.ids import InputId, SessionId, WriterId
from refold_protocol.session.messages import EpochHeader, Message
from refold_protocol.session.session_state import PendingInput, Status
from refold_protocol.session.session_totals import UsageTotals
from refold_protocol.session.transcript import TranscriptEntry


class ForkOrigin(Struct, frozen=True, gc=False):
    """The parent of a fork, the last inherited seq, and the digest of that event in hex."""

    session: SessionId
    at: int
    digest: str


class SessionInfo(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """What is known of a session beside its events. Times are Unix epoch ms; `usage` is in tokens; `model` is
    `provider/model`, the last one used or set. An absent number is 0."""

    cwd: str
    created_at: int
    title: str | None = None
    model: str | None = None
    last_activity: int | None = None
    turns: int = 0
    usage: UsageTotals = UsageTotals()
    parent: ForkOrigin | None = None
    archived: bool = False


class SessionOpenResult(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """`session/open`. `tail` and `durable` are the seqs of the last accepted and the last durable event, −1 for none.
    `instance` and `writer` are there when it was opened for writing. Pending inputs are in the order of acceptance."""

    session: SessionId
    tail: int
    durable: int
    info: SessionInfo
    status: Status
    pending_inputs: tuple[PendingInput, ...]
    instance: int | None = None
    writer: WriterId | None = None


class SurfaceNode(Struct, frozen=True, gc=False, omit_defaults=True):
    """A node of the surface: its event's seq and type, and the message that it becomes for the model, if any."""

    seq: int
    type: str
    message: Message | None = None


class SessionReadResult(Struct, frozen=True, gc=False):
    """`session/read`: the member that belongs to the view, in order; `next` is the `page.after` of the next page."""

    events: tuple[Raw, ...] | UnsetType = UNSET
    nodes: tuple[SurfaceNode, ...] | UnsetType = UNSET
    entries: tuple[TranscriptEntry, ...] | UnsetType = UNSET
    header: EpochHeader | UnsetType | None = UNSET
    status: Status | UnsetType = UNSET
    next: int | UnsetType = UNSET


class SessionFlushResult(Struct, frozen=True, gc=False):
    """`session/flush`: seq of the last durable event."""

    durable: int


class TurnStartResult(Struct, frozen=True, gc=False, omit_defaults=True):
    """`turn/start`: the input is durable at `seq`; `turn` is there when it started one."""

    input: InputId
    seq: int
    turn: int | None = None


class TurnInterruptResult(Struct, frozen=True, gc=False):
    """`turn/interrupt`: the `reason` object of the turn's end as recorded; `null` on an idle session."""

    reason: Raw


class EventSubscribeResult(Struct, frozen=True, gc=False, omit_defaults=True):
    """`event/subscribe`. `writer` is absent for a session that nobody ever wrote."""

    subscription: int
    tail: int
    durable: int
    writer: WriterId | None = None


class EventUnsubscribeResult(Struct, frozen=True, gc=False):
    """`event/unsubscribe`: the seq of the last event that was sent. None of the subscription follows this reply."""

    last: int


class RequestRebuildResult(Struct, frozen=True, gc=False, rename="camel"):
    """`request/rebuild`: the exact body as text, its SHA-256 and the Request's, in hex. `verdict` compares with what was
    recorded when it was sent: `unshipped` where this release lacks that encoder version, `unsent` where nothing was."""

    body: str
    sha256: str
    request_sha256: str
    verdict: Literal["equal", "different", "unshipped", "unsent"]


class Mismatch(Struct, frozen=True, gc=False, omit_defaults=True):
    """The first thing that differs, at the event `seq`, or somewhere in the events `seq` to `last`: `what` is `record`,
    `chain`, `head`, `line`, `grammar`, `surface`, `header`, `pairing`, `request` or `body`; `message` says what was expected
    and what was found."""

    what: str
    seq: int
    message: str
    last: int | None = None


class LogVerifyResult(Struct, frozen=True, gc=False, omit_defaults=True):
    """`log/verify`: how many events and requests were checked, how many requests came out equal, how many were of an
    encoder version that this release does not ship; the first mismatch, if any."""

    events: int
    requests: int
    equal: int
    unshipped: int
    mismatch: Mismatch | None = None
