"""The grammar of a log: what may follow what, and what stands open after it.

`turn_step` judges one event and folds it. Whoever writes, imports or verifies a log asks it; nobody else has such rules.
The state says which turn and step are open, what was streamed without a message yet, which calls wait for results, which
approvals for a decision, whether a compaction runs. `turn_step_over` folds a turn that was judged when it was written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from refold_protocol.errors import InvalidEventError
from refold_protocol.ids import ApprovalId, CallId
from refold_protocol.session.append_only_list import AppendOnlyList
from refold_protocol.session.codec import check_envelope
from refold_protocol.session.events import (
    ApprovalAsked,
    ApprovalDecided,
    AssistantChunk,
    AssistantMessage,
    CompactEnd,
    CompactStart,
    CompactSummary,
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
from refold_protocol.session.messages import CallConfig, Chunk, ToolCallBlock


class Stream(Struct, frozen=True, gc=False):
    """Chunks of the last attempt of the open step, while they have no message; `ranges` are their seqs."""

    attempt: int = 0
    chunks: AppendOnlyList[Chunk] = AppendOnlyList()
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


class TurnState(Struct, frozen=True, gc=False):
    """State of the fold.

    Of the log: `instance` counts loop instances, `began` is the seq of the last one's start (−1 for none), `last_turn` counts
    turns, `route` is where requests go, `compaction` is the seq of an open `compact/start`, `landed` whether its summary
    stands for the region already.
    Of the open turn: its number, whether it has its prompt, and how many steps it had.
    Of the open step: its number, the seq of its `step/start`, which attempt of its request was `sent` last (0 for none),
    what was streamed, whether it has its reply, and what waits.
    """

    instance: int = 0
    began: int = -1
    last_turn: int = 0
    route: Route | None = None
    compaction: int | None = None
    landed: bool = False
    turn: int | None = None
    prompted: bool = False
    last_step: int = 0
    step: int | None = None
    step_began: int = -1
    sent: int = 0
    stream: Stream = Stream()
    replied: bool = False
    calls: tuple[OpenCall, ...] = ()
    approvals: tuple[tuple[ApprovalId, CallId], ...] = ()


NO_TURN: Final = TurnState()


def turn_step(state: TurnState, event: Event) -> TurnState:
    """Judge and fold one event. Raises InvalidEventError, with its seq, when it may not stand here. O(1), whatever the log's
    length."""
    data = event.data
    if type(data) is AssistantChunk and event.surface_op is None and event.sources is None:
        return _chunk(state, event, data)
    check_envelope(event.type, event.surface_op, event.sources, event.seq)
    if event.surface_op is not None and event.surface_op != "append":
        _require(state.step is None, event, "a replace stands between steps")
        return _with_summary(state, event)
    step = _STEPS.get(type(data))
    return state if step is None else step(state, event, data)


def turn_step_over(state: TurnState, event: Event) -> TurnState:
    """Fold one event of turns that are over, without judging it. At a `turn/end` the state is that of `turn_step`."""
    match event.data:
        case InstanceStart(instance=instance):
            return replace(state, instance=instance, began=event.seq)
        case TurnEnd(turn=turn):
            return replace(state, last_turn=turn)
        case RequestHeader() as header:
            return _with_route(state, header.header.config)
        case RequestHeaderDelta(config=config):
            return _with_route(state, config)
        case CompactStart():
            return replace(state, compaction=event.seq, landed=False)
        case CompactEnd():
            return replace(state, compaction=None, landed=False)
        case UserMessage() if event.surface_op != "append":
            return _with_summary(state, event)
        case _:
            return state


def fold_turns(events: Iterable[Event], state: TurnState = NO_TURN) -> TurnState:
    """Judge and fold `events`, going on from `state`."""
    for event in events:
        state = turn_step(state, event)
    return state


def _turn_start(state: TurnState, event: Event, data: TurnStart) -> TurnState:
    _outside_turn(state, event)
    if data.turn != state.last_turn + 1:
        raise _refused(event, f"turn {data.turn} after turn {state.last_turn}")
    return replace(state, turn=data.turn, last_turn=data.turn, last_step=0, prompted=False)


def _turn_end(state: TurnState, event: Event, data: TurnEnd) -> TurnState:
    if data.turn != state.turn:
        raise _refused(event, f"turn {data.turn} is not open")
    if state.step is not None:
        raise _refused(event, f"step {state.step} is open")
    return TurnState(state.instance, state.began, state.last_turn, state.route, state.compaction, state.landed)


def _step_start(state: TurnState, event: Event, data: StepStart) -> TurnState:
    _require(data.turn == state.turn and state.step is None, event, "a step opens in its turn, outside other steps")
    if data.step != state.last_step + 1:
        raise _refused(event, f"step {data.step} after step {state.last_step}")
    return replace(state, step=data.step, last_step=data.step, step_began=event.seq, sent=0)


def _step_end(state: TurnState, event: Event, data: StepEnd) -> TurnState:
    _in_step(state, event, data.turn, data.step)
    _require(not state.calls, event, "calls wait for their results")
    _require(not state.approvals, event, "approvals wait for a decision")
    return replace(state, step=None, stream=_NO_STREAM, replied=False)


def _instance_start(state: TurnState, event: Event, data: InstanceStart) -> TurnState:
    _outside_turn(state, event)
    if data.instance != state.instance + 1:
        raise _refused(event, f"instance {data.instance} after {state.instance}")
    return replace(state, instance=data.instance, began=event.seq)


def _compact_start(state: TurnState, event: Event, data: CompactStart) -> TurnState:
    _require(state.step is None, event, "a compaction stands between steps")
    _in_turn(state, event, data.turn)
    return replace(state, compaction=event.seq, landed=False)


def _compact_summary(state: TurnState, event: Event, data: CompactSummary) -> TurnState:  # noqa: ARG001
    _require(state.compaction is not None, event, "no compaction is open")
    return state


def _compact_end(state: TurnState, event: Event, data: CompactEnd) -> TurnState:  # noqa: ARG001
    _require(state.compaction is not None, event, "no compaction is open")
    return replace(state, compaction=None, landed=False)


def _user_message(state: TurnState, event: Event, data: UserMessage) -> TurnState:  # noqa: ARG001
    first = state.turn is not None and state.last_step == 0 and not state.prompted
    _require(first, event, "a turn has one prompt, which joins before its first step")
    return replace(state, prompted=True)


def _steering_message(state: TurnState, event: Event, data: SteeringMessage) -> TurnState:
    _require(data.turn == state.turn and state.step is None, event, "steering joins before a step of its turn")
    return state


def _context_message(state: TurnState, event: Event, data: ContextMessage) -> TurnState:  # noqa: ARG001
    after_results = state.replied and not state.calls
    _require(state.turn is not None, event, "context joins inside a turn")
    _require(state.step is None or after_results, event, "context joins before a step or after the last result")
    return state


def _assistant_message(state: TurnState, event: Event, data: AssistantMessage) -> TurnState:
    _unreplied(state, event, data)
    _require(state.sent > 0, event, "no request of this step was sent")
    _cites_its_chunks(state, event)
    calls = tuple([OpenCall(CallId(one.id), one.name, one.arguments) for one in data.content if isinstance(one, ToolCallBlock)])
    _require(len({call.id for call in calls}) == len(calls), event, "two calls of one reply have the same id")
    return replace(state, replied=True, calls=calls, stream=_NO_STREAM)


def _tool_call(state: TurnState, event: Event, data: ToolCall) -> TurnState:
    _in_step(state, event, data.turn, data.step)
    call = _open_call(state, event, data.call_id)
    if call.started is not None:
        raise _refused(event, f"call {call.id} started before")
    return replace(state, calls=_changed(state.calls, replace(call, started=event.seq)))


def _tool_result(state: TurnState, event: Event, data: ToolResult) -> TurnState:
    _in_step(state, event, data.turn, data.step)
    call = _open_call(state, event, data.call_id)
    if event.sources and event.sources[0][0] <= state.step_began:
        raise _refused(event, f"it cites event {event.sources[0][0]}, which is not of its step")
    return replace(state, calls=tuple([one for one in state.calls if one is not call]))


def _asked(state: TurnState, event: Event, data: ApprovalAsked) -> TurnState:
    call = _open_call(state, event, data.call_id)
    calls = _changed(state.calls, replace(call, approval="asked"))
    return replace(state, calls=calls, approvals=(*state.approvals, (data.id, data.call_id)))


def _request_sent(state: TurnState, event: Event, data: RequestSent) -> TurnState:
    if data.purpose != "step":
        _require(state.compaction is not None, event, "no compaction is open")
        _in_turn(state, event, data.turn)
        return state
    _unreplied(state, event, data)
    _require(state.route is not None, event, "no header was recorded")
    if data.attempt != state.sent + 1:
        raise _refused(event, f"attempt {data.attempt} after attempt {state.sent}")
    return replace(state, sent=data.attempt)


def _chunk(state: TurnState, event: Event, data: AssistantChunk) -> TurnState:
    _unreplied(state, event, data)
    if data.attempt != state.sent or not state.sent:
        raise _refused(event, f"it is of attempt {data.attempt}, and attempt {state.sent} was sent last")
    return replace(state, stream=stream_step(state.stream, data, event.seq))


def _retry(state: TurnState, event: Event, data: LlmRetry) -> TurnState:
    _unreplied(state, event, data)
    return state


def _header(state: TurnState, event: Event, data: RequestHeader) -> TurnState:
    return _routed(state, event, data.header.config)


def _header_delta(state: TurnState, event: Event, data: RequestHeaderDelta) -> TurnState:
    return _routed(state, event, data.config)


def _routed(state: TurnState, event: Event, config: CallConfig | None) -> TurnState:
    """A step has one request, and a retry sends its bytes again: so nothing changes the header once it left."""
    _require(
        state.step is not None and not state.sent and not state.replied, event, "a header stands in a step, before its request"
    )
    return _with_route(state, config)


def _with_route(state: TurnState, config: CallConfig | None) -> TurnState:
    return state if config is None else replace(state, route=Route(config.provider, config.model))


def _with_summary(state: TurnState, event: Event) -> TurnState:
    """A message in place of others ends what an open compaction is about; a shorter result of a tool does not."""
    return replace(state, landed=True) if state.compaction is not None and isinstance(event.data, UserMessage) else state


def _decided(state: TurnState, event: Event, data: ApprovalDecided) -> TurnState:
    asked = next((row for row in state.approvals if row[0] == data.id), None)
    if asked is None:
        raise InvalidEventError(f"event {event.seq} decides {data.id}, which is not open", seq=event.seq)
    call = next((call for call in state.calls if call.id == asked[1]), None)
    calls = state.calls if call is None else _changed(state.calls, replace(call, approval=data.outcome))
    return replace(state, calls=calls, approvals=tuple(row for row in state.approvals if row is not asked))


def stream_step(stream: Stream, data: AssistantChunk, seq: int) -> Stream:
    """Give the stream with one more chunk: the first one of another attempt begins anew."""
    if data.attempt != stream.attempt:
        return Stream(data.attempt, AppendOnlyList((data.chunk,)), ((seq, seq),))
    first, last = stream.ranges[-1]
    ranges = (*stream.ranges[:-1], (first, seq)) if last == seq - 1 else (*stream.ranges, (seq, seq))
    return Stream(stream.attempt, stream.chunks.then(data.chunk), ranges)


def _open_call(state: TurnState, event: Event, call_id: CallId) -> OpenCall:
    for call in state.calls:
        if call.id == call_id:
            return call
    raise InvalidEventError(f"event {event.seq} ({event.type}): no call {call_id!r} waits in this step", seq=event.seq)


def _changed(calls: tuple[OpenCall, ...], changed: OpenCall) -> tuple[OpenCall, ...]:
    return tuple([changed if call.id == changed.id else call for call in calls])


def _outside_turn(state: TurnState, event: Event) -> None:
    if state.turn is not None:
        raise _refused(event, f"turn {state.turn} is open")


def _in_turn(state: TurnState, event: Event, turn: int | None) -> None:
    if turn != state.turn:
        raise _refused(event, f"it names turn {turn}; open is {state.turn}")


def _unreplied(state: TurnState, event: Event, data: AssistantChunk | AssistantMessage | RequestSent | LlmRetry) -> None:
    _in_step(state, event, data.turn, data.step)
    _require(not state.replied, event, "the step has its reply")


def _in_step(state: TurnState, event: Event, turn: int | None, step: int | None) -> None:
    if state.step is None or state.step != step or state.turn != turn:
        raise InvalidEventError(
            f"event {event.seq} ({event.type}) names step {turn}.{step}; open is {state.turn}.{state.step}",
            seq=event.seq,
        )


def _require(condition: bool, event: Event, rule: str) -> None:
    if not condition:
        raise _refused(event, rule)


def _refused(event: Event, rule: str) -> InvalidEventError:
    return InvalidEventError(f"event {event.seq} ({event.type}) may not stand here: {rule}", seq=event.seq)


def _cites_its_chunks(state: TurnState, event: Event) -> None:
    sources, streamed = event.sources, state.stream.ranges
    if sources is None or sources == streamed:
        return
    for first, last in sources:
        if not any(low <= first and last <= high for low, high in streamed):
            raise _refused(event, f"it cites events {first} to {last}, which are not chunks of its attempt")


_NO_STREAM: Final = Stream()

_STEPS: Final[dict[type, Callable[[TurnState, Event, Any], TurnState]]] = {
    TurnStart: _turn_start,
    TurnEnd: _turn_end,
    StepStart: _step_start,
    StepEnd: _step_end,
    InstanceStart: _instance_start,
    CompactStart: _compact_start,
    CompactSummary: _compact_summary,
    CompactEnd: _compact_end,
    UserMessage: _user_message,
    SteeringMessage: _steering_message,
    ContextMessage: _context_message,
    AssistantChunk: _chunk,
    AssistantMessage: _assistant_message,
    ToolCall: _tool_call,
    ToolResult: _tool_result,
    ApprovalAsked: _asked,
    ApprovalDecided: _decided,
    RequestHeader: _header,
    RequestHeaderDelta: _header_delta,
    RequestSent: _request_sent,
    LlmRetry: _retry,
}
"""What each type of data does to the state; no other changes it."""
