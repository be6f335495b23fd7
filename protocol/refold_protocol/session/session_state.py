"""The state of a session: all that its log says to whoever goes on with it, and the one fold of it.

`fold` judges an event and folds it; the writer, import and verify ask it. `fold_over` folds an event of turns that are over, of
a log that was judged when it was written. States are immutable: a batch is tried on one before it is accepted.

The status of a session, as far as its log tells: a view of the state of its turn.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias, cast

from msgspec import Struct

from refold_protocol.errors import InvalidEventError, SessionCorruptionError
from refold_protocol.ids import ApprovalId, CallId, InputId
from refold_protocol.session.append_only_list import AppendOnlyList
from refold_protocol.session.codec import refuse_foreign
from refold_protocol.session.events import (
    ApprovalAsked,
    ApprovalDecided,
    AssistantChunk,
    AssistantMessage,
    ContextMessage,
    Event,
    InputAccepted,
    InputSettled,
    InstanceStart,
    ModelWindow,
    RequestSent,
    SessionSettings,
    SteeringMessage,
    ToolCall,
    TurnEnd,
    TurnStart,
    UserMessage,
)
from refold_protocol.session.grammar import NO_TURN, TurnState, turn_step, turn_step_over
from refold_protocol.session.header import canonical_header
from refold_protocol.session.messages import EpochHeader, InputBlock, Source
from refold_protocol.session.model_windows import (
    LEAST_READ,
    Windows,
    can_be_whole,
    can_extend,
    with_count,
    with_told,
    without_disproved,
)
from refold_protocol.session.request import NO_REQUESTS, RequestState, horizon_step


class PendingInput(Struct, frozen=True, gc=False, omit_defaults=True):
    """An input that waits; `seq` is that of its `input/accepted`."""

    input: InputId
    seq: int
    mode: str
    content: tuple[InputBlock, ...]
    source: Source
    key: str | None = None


Pending: TypeAlias = tuple[PendingInput, ...]
"""State of the fold, in the order of acceptance."""


class Granted(Struct, frozen=True, gc=False):
    """State of the fold. `tools` are those allowed for the session, in the order of the answers; `asked` has the tools of
    open questions."""

    tools: tuple[str, ...] = ()
    asked: tuple[tuple[ApprovalId, str], ...] = ()


NOTHING_GRANTED = Granted()


class CountedPrompt(Struct, frozen=True, gc=False):
    """The prompt of a call that its provider counted, in `tokens`; `seq` is the reply's, `nodes` the surface before it."""

    turn: int
    step: int
    seq: int
    tokens: int
    nodes: AppendOnlyList[Event]


class CountedCall(Struct, frozen=True, gc=False):
    """A call that its provider counted. `model` is `provider/model`, `tokens` counts prompt and output, `header` (canonical)
    is what it was sent with, `nodes` the surface just before its reply. `first` is the first prompt that was counted of this
    model and header, as long as no other header came between: the shortest, mostly."""

    model: str
    turn: int
    step: int
    tokens: int
    header: EpochHeader
    nodes: AppendOnlyList[Event]
    reply: Event
    first: CountedPrompt


Counted: TypeAlias = tuple[CountedCall, ...]
"""State of the fold: the last counted call of each model."""

NO_SETTINGS: Final = SessionSettings()
"""Before any settings were recorded: all is the configuration's."""


class SessionState(Struct, frozen=True, gc=False):
    """What a session knows after its events so far, of which `revision` is the number."""

    revision: int = 0
    work: TurnState = NO_TURN
    request_state: RequestState = NO_REQUESTS
    pending: Pending = ()
    settings: SessionSettings = NO_SETTINGS
    granted: Granted = NOTHING_GRANTED
    counted: Counted = ()
    windows: Windows = ()


NO_EVENTS: Final = SessionState()


def fold(state: SessionState, event: Event) -> SessionState:
    """Judge and fold one event.

    Raises InvalidEventError for one that may not stand here, SessionCorruptionError for a header delta that does not fit,
    SessionFormatUnsupportedError for a foreign event that may not be skipped; each with its seq.
    """
    turn = turn_step(state.work, event)
    if type(event.data) in _OF_TURNS_ALONE:
        return SessionState(
            event.seq + 1,
            turn,
            state.request_state,
            state.pending,
            state.settings,
            state.granted,
            state.counted,
            state.windows,
        )
    refuse_foreign(event)
    return _folded(state, event, turn)


def fold_over(state: SessionState, event: Event) -> SessionState:
    """Fold one event of turns that are over, without judging it. Raises what `fold` raises of surface, header and type."""
    refuse_foreign(event)
    return _folded(state, event, turn_step_over(state.work, event))


def fold_stored(state: SessionState, event: Event) -> SessionState:
    """Judge and fold one event of a stored log: what may not stand there raises SessionCorruptionError."""
    try:
        return fold(state, event)
    except InvalidEventError as error:
        raise SessionCorruptionError(f"the log breaks its own rules: {error.message}", **error.details) from error


def fold_all(events: Iterable[Event], state: SessionState = NO_EVENTS) -> SessionState:
    """Judge and fold `events`, going on from `state`."""
    for event in events:
        state = fold(state, event)
    return state


def _folded(state: SessionState, event: Event, turn: TurnState) -> SessionState:
    return SessionState(
        event.seq + 1,
        turn,
        horizon_step(state.request_state, event),
        pending_step(state.pending, event),
        event.data if isinstance(event.data, SessionSettings) else state.settings,
        granted_step(state.granted, event),
        *counted_step(state.counted, state.windows, event, state.request_state),
    )


def pending_step(state: Pending, event: Event) -> Pending:
    """Fold one event. After a resume nothing that waits runs by itself; it is listed and offered. Forks do not inherit it."""
    if type(event.data) not in _OF_INPUTS:
        return state
    match event.data:
        case InputAccepted(input=accepted, mode=mode, content=content, source=source, key=key):
            return (*state, PendingInput(accepted, event.seq, mode, content, source, key))
        case UserMessage(input=str(gone)) | ContextMessage(input=str(gone)) | SteeringMessage(input=str(gone)):
            return tuple(waiting for waiting in state if waiting.input != gone) if state else state
        case InputSettled(input=gone):
            return tuple(waiting for waiting in state if waiting.input != gone)
        case InstanceStart(reason="fork"):
            return ()
        case _:
            return state


def granted_step(state: Granted, event: Event) -> Granted:
    """Fold one event. What a person allowed holds over resumes; a fork is another session and inherits none of it."""
    if type(event.data) not in _OF_GRANTS:
        return state
    match event.data:
        case ApprovalAsked(id=approval, tool=tool):
            return Granted(state.tools, (*state.asked, (approval, tool)))
        case ApprovalDecided(id=approval, outcome=outcome, scope=scope):
            rest = tuple(row for row in state.asked if row[0] != approval)
            named = tuple(tool for one, tool in state.asked if one == approval and tool not in state.tools)
            for_good = outcome == "allowed" and scope == "session"
            return Granted((*state.tools, *named) if for_good else state.tools, rest)
        case SessionSettings(revoked=tuple(revoked)):
            return Granted(tuple(tool for tool in state.tools if tool not in revoked), state.asked)
        case InstanceStart(reason="fork"):
            return NOTHING_GRANTED
        case _:
            return state


def counted_step(state: Counted, windows: Windows, event: Event, before: RequestState) -> tuple[Counted, Windows]:
    """Fold one event, before which the model saw `before`. A copy of an old reply, an interrupted one and one without usage
    count for nothing; nor does a prompt of no tokens, which providers report that do not count, or figures that cannot be. A
    count that is too small for what was sent shows the window of the server."""
    reply, header = event.data, before.header
    if isinstance(reply, ModelWindow):
        return state, with_told(windows, reply)
    if not isinstance(reply, AssistantMessage) or event.surface_op != "append" or reply.interrupted or header is None:
        return state, windows
    if reply.usage is None or reply.usage.prompt_tokens <= 0 or not reply.usage.is_possible:
        return state, windows
    model, nodes = f"{reply.provider}/{reply.model}", before.surface.nodes
    sent_with, before_it = canonical_header(header), next((one for one in state if one.model == model), None)
    if not _was_read_whole(reply.usage.prompt_tokens, sent_with, nodes, before_it):
        return state, with_count(windows, model, reply.usage.prompt_tokens, event.seq)
    first = CountedPrompt(reply.turn, reply.step, event.seq, reply.usage.prompt_tokens, nodes)
    if before_it is not None and before_it.header == sent_with:
        first = before_it.first
    call = CountedCall(model, reply.turn, reply.step, reply.usage.total_tokens, sent_with, nodes, event, first)
    return (*[one for one in state if one.model != model], call), without_disproved(windows, model, reply.usage.prompt_tokens)


def _was_read_whole(tokens: int, header: EpochHeader, nodes: AppendOnlyList[Event], earlier: CountedCall | None) -> bool:
    """Tell whether a server that counted `tokens` can have read all of a request."""
    if tokens < LEAST_READ:
        return True
    if earlier is None or earlier.header != header or not nodes.extends(earlier.nodes):
        return can_be_whole(tokens, header, nodes)
    usage = cast("AssistantMessage", earlier.reply.data).usage
    return usage is None or can_extend(tokens, usage.prompt_tokens, earlier.nodes, nodes)


_OF_TURNS_ALONE: Final = frozenset((AssistantChunk, RequestSent, ToolCall, TurnStart, TurnEnd))
"""Data that changes the turn's state alone: over nine of ten events."""
_OF_INPUTS: Final = frozenset((InputAccepted, UserMessage, ContextMessage, SteeringMessage, InputSettled, InstanceStart))
"""Data that may change which inputs wait."""
_OF_GRANTS: Final = frozenset((ApprovalAsked, ApprovalDecided, InstanceStart, SessionSettings))
"""Data that may change what is allowed."""


class Status(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """`status` is `idle`, `running`, `waiting` (for an approval), `compacting` or `broken` (its log cannot be written).

    `turn` and `step` are the open ones. Calls and approvals are in the order in which they were asked for. `unmetered`, in
    the answer to `session/open` alone: nobody stated the window of the model, so the session is not metered and never
    compacted.
    """

    status: str
    turn: int | None = None
    step: int | None = None
    open_calls: tuple[CallId, ...] = ()
    open_approvals: tuple[ApprovalId, ...] = ()
    unmetered: bool = False


def status_of(work: TurnState) -> Status:
    """Give the status that follows from what stands open. Never `broken`: that is about the log, not in it."""
    if work.compaction is not None:
        word = "compacting"
    elif work.approvals:
        word = "waiting"
    elif work.turn is not None:
        word = "running"
    else:
        word = "idle"
    calls = tuple(call.id for call in work.calls)
    return Status(word, work.turn, work.step, calls, tuple(approval for approval, _ in work.approvals))


def phase_of(work: TurnState) -> str | None:
    """Say what a running turn waits for: `approval`, `tool`, `provider`, or `loop` for none of these; None when idle."""
    if work.approvals:
        return "approval"
    if any(call.started is not None for call in work.calls):
        return "tool"
    if (work.sent and not work.replied and work.step is not None) or (work.compaction is not None and work.turn is not None):
        return "provider"
    return None if work.turn is None else "loop"
