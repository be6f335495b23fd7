"""Owns the state of the work fold: what stands open at the end of a log. `work.py` says how events change it."""

from __future__ import annotations

from msgspec import Struct

from refold_protocol.ids import ApprovalId, CallId
from refold_protocol.session.events import SeqRange
from refold_protocol.session.messages import Chunk
from refold_protocol.session.tape import Tape


class Stream(Struct, frozen=True, gc=False):
    """Chunks of the last attempt of the open step, while they have no message; `ranges` are their seqs."""

    attempt: int = 0
    chunks: Tape[Chunk] = Tape()
    ranges: tuple[SeqRange, ...] = ()


class OpenCall(Struct, frozen=True, gc=False):
    """A call without a result. `started` is the seq of its `tool/call`; `approval` is `asked`, `allowed` or `denied`."""

    id: CallId
    name: str
    arguments: str
    started: int | None = None
    approval: str | None = None


class Route(Struct, frozen=True, gc=False):
    """Provider and model of the header in force."""

    provider: str
    model: str


class Work(Struct, frozen=True, gc=False):
    """State of the fold. `turn` and `step` are the open ones; `last_turn` counts the session's turns, `last_step` the
    steps of the last turn; `prompted`, `sent` and `replied` tell whether the last turn has its prompt, whether the open
    step's request left, whether it has its reply; `compaction` is the seq of an open `compact/start`, `landed` whether
    its summary stands for the region already; `instance` counts loop instances, `began` is the seq of the last one's start
    (−1 for none)."""

    instance: int = 0
    began: int = -1
    last_turn: int = 0
    last_step: int = 0
    turn: int | None = None
    step: int | None = None
    prompted: bool = False
    route: Route | None = None
    sent: bool = False
    stream: Stream = Stream()
    replied: bool = False
    calls: tuple[OpenCall, ...] = ()
    approvals: tuple[tuple[ApprovalId, CallId], ...] = ()
    compaction: int | None = None
    landed: bool = False


NO_WORK = Work()
