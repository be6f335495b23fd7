"""Owns the work fold: what stands open at the end of a log, and the grammar by which events may follow each other.

The state says which turn and step are open, what has been streamed without a message yet, which calls wait for their
results, which approvals for a decision, whether a compaction runs. Closers, status and the writer's admission all read
this one state. `work_step` refuses an event that may not stand where it stands; nothing is changed then.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from refold_protocol.errors import InvalidEventError
from refold_protocol.ids import ApprovalId, CallId
from refold_protocol.session.events import (
    ApprovalAsked,
    ApprovalDecided,
    AssistantChunk,
    AssistantMessage,
    CompactEnd,
    CompactStart,
    ContextMessage,
    Event,
    InstanceStart,
    LlmRetry,
    RequestHeader,
    RequestHeaderDelta,
    RequestSent,
    SeqRange,
    SteeringMessage,
    StepEnd,
    StepStart,
    ToolCall,
    ToolResult,
    TurnEnd,
    TurnStart,
    UserMessage,
)
from refold_protocol.session.header_types import CallConfig
from refold_protocol.session.messages import Chunk, ToolCallBlock
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
    step's request left, whether it has its reply; `compaction` is the seq of an open `compact/start`; `instance` counts
    loop instances, `began` is the seq of the last one's start (−1 for none)."""

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


NO_WORK = Work()


def work_step(state: Work, event: Event) -> Work:
    """Fold one event. Raises InvalidEventError when it may not stand here. O(1), whatever the log's length."""
    data = event.data
    if type(data) is AssistantChunk:
        _unreplied(state, event, data.turn, data.step)
        return replace(state, stream=_streamed(state.stream, data, event.seq))
    if event.surface_op is not None and event.surface_op != "append":
        _require(state.step is None, event, "a replace stands between steps")
        return state
    return _bracket_step(state, event)


def fold_work(events: Iterable[Event], state: Work = NO_WORK) -> Work:
    """Fold `events`, going on from `state`."""
    for event in events:
        state = work_step(state, event)
    return state


def _bracket_step(state: Work, event: Event) -> Work:
    match event.data:
        case TurnStart(turn=turn):
            _require(state.turn is None, event, f"turn {state.turn} is open")
            _require(turn == state.last_turn + 1, event, f"turn {turn} after turn {state.last_turn}")
            return replace(state, turn=turn, last_turn=turn, last_step=0, prompted=False)
        case TurnEnd(turn=turn):
            _require(turn == state.turn, event, f"turn {turn} is not open")
            _require(state.step is None, event, f"step {state.step} is open")
            return replace(state, turn=None)
        case StepStart(turn=turn, step=step):
            _require(turn == state.turn and state.step is None, event, "a step opens in its turn, outside other steps")
            _require(step == state.last_step + 1, event, f"step {step} after step {state.last_step}")
            return replace(state, step=step, last_step=step, sent=False)
        case StepEnd(turn=turn, step=step):
            _in_step(state, event, turn, step)
            _require(not state.calls, event, "calls wait for their results")
            _require(not state.approvals, event, "approvals wait for a decision")
            return replace(state, step=None, stream=Stream(), replied=False)
        case InstanceStart(instance=instance):
            _require(state.turn is None, event, f"turn {state.turn} is open")
            _require(instance == state.instance + 1, event, f"instance {instance} after {state.instance}")
            return replace(state, instance=instance, began=event.seq)
        case CompactStart():
            _require(state.step is None, event, "a compaction stands between steps")
            return replace(state, compaction=event.seq)
        case CompactEnd():
            _require(state.compaction is not None, event, "no compaction is open")
            return replace(state, compaction=None)
        case _:
            return _surface_growth(state, event)


def _surface_growth(state: Work, event: Event) -> Work:
    match event.data:
        case UserMessage():
            first = state.turn is not None and state.last_step == 0 and not state.prompted
            _require(first, event, "a turn has one prompt, which joins before its first step")
            return replace(state, prompted=True)
        case SteeringMessage(turn=turn):
            _require(turn == state.turn and state.step is None, event, "steering joins before a step of its turn")
            return state
        case ContextMessage():
            after_results = state.replied and not state.calls
            _require(state.turn is not None, event, "context joins inside a turn")
            _require(state.step is None or after_results, event, "context joins before a step or after the last result")
            return state
        case AssistantMessage(turn=turn, step=step):
            _unreplied(state, event, turn, step)
            calls = tuple(
                OpenCall(CallId(block.id), block.name, block.arguments)
                for block in event.data.content
                if isinstance(block, ToolCallBlock)
            )
            _require(len({call.id for call in calls}) == len(calls), event, "two calls of one reply have the same id")
            return replace(state, replied=True, calls=calls, stream=Stream())
        case _:
            return _inside_step(state, event)


def _inside_step(state: Work, event: Event) -> Work:
    match event.data:
        case ToolCall(turn=turn, step=step, call_id=call_id):
            _in_step(state, event, turn, step)
            call = _open_call(state, event, call_id)
            _require(call.started is None, event, f"call {call_id} started before")
            return replace(state, calls=_changed(state.calls, replace(call, started=event.seq)))
        case ToolResult(turn=turn, step=step, call_id=call_id):
            _in_step(state, event, turn, step)
            call = _open_call(state, event, call_id)
            return replace(state, calls=tuple(one for one in state.calls if one is not call))
        case ApprovalAsked(id=approval, call_id=call_id):
            call = _open_call(state, event, call_id)
            calls = _changed(state.calls, replace(call, approval="asked"))
            return replace(state, calls=calls, approvals=(*state.approvals, (approval, call_id)))
        case ApprovalDecided(id=approval, outcome=outcome):
            return _decided(state, event, approval, outcome)
        case RequestHeader(header=header):
            return _routed(state, event, header.config)
        case RequestHeaderDelta(config=config):
            return _routed(state, event, config)
        case RequestSent(purpose="step", turn=turn, step=step):
            _unreplied(state, event, turn, step)
            return replace(state, sent=True)
        case LlmRetry(turn=turn, step=step):
            _unreplied(state, event, turn, step)
            return state
        case _:
            return state


def _routed(state: Work, event: Event, config: CallConfig | None) -> Work:
    """A step has one request, and a retry sends its bytes again: so nothing changes the header once it left."""
    _require(
        state.step is not None and not state.sent and not state.replied, event, "a header stands in a step, before its request"
    )
    return state if config is None else replace(state, route=Route(config.provider, config.model))


def _decided(state: Work, event: Event, approval: ApprovalId, outcome: str) -> Work:
    asked = next((row for row in state.approvals if row[0] == approval), None)
    if asked is None:
        raise InvalidEventError(f"event {event.seq} decides {approval}, which is not open", seq=event.seq)
    call = next((call for call in state.calls if call.id == asked[1]), None)
    calls = state.calls if call is None else _changed(state.calls, replace(call, approval=outcome))
    return replace(state, calls=calls, approvals=tuple(row for row in state.approvals if row is not asked))


def _streamed(stream: Stream, data: AssistantChunk, seq: int) -> Stream:
    if data.attempt != stream.attempt:
        return Stream(data.attempt, Tape((data.chunk,)), ((seq, seq),))
    first, last = stream.ranges[-1]
    ranges = (*stream.ranges[:-1], (first, seq)) if last == seq - 1 else (*stream.ranges, (seq, seq))
    return Stream(stream.attempt, stream.chunks.then(data.chunk), ranges)


def _open_call(state: Work, event: Event, call_id: CallId) -> OpenCall:
    for call in state.calls:
        if call.id == call_id:
            return call
    raise InvalidEventError(f"event {event.seq} ({event.type}): no call {call_id!r} waits in this step", seq=event.seq)


def _changed(calls: tuple[OpenCall, ...], changed: OpenCall) -> tuple[OpenCall, ...]:
    return tuple(changed if call.id == changed.id else call for call in calls)


def _unreplied(state: Work, event: Event, turn: int | None, step: int | None) -> None:
    _in_step(state, event, turn, step)
    _require(not state.replied, event, "the step has its reply")


def _in_step(state: Work, event: Event, turn: int | None, step: int | None) -> None:
    if state.step is None or state.step != step or state.turn != turn:
        raise InvalidEventError(
            f"event {event.seq} ({event.type}) names step {turn}.{step}; open is {state.turn}.{state.step}",
            seq=event.seq,
        )


def _require(condition: bool, event: Event, rule: str) -> None:
    if not condition:
        raise InvalidEventError(f"event {event.seq} ({event.type}) may not stand here: {rule}", seq=event.seq)
