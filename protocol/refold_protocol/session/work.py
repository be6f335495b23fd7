"""Owns the work fold: what stands open at the end of a log, and the grammar by which events may follow each other.

The state says which turn and step are open, what has been streamed without a message yet, which calls wait for their
results, which approvals for a decision, whether a compaction runs. Closers, status and the writer's admission all read
this one state. `work_step` refuses an event that may not stand where it stands; nothing is changed then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from msgspec.structs import replace

from refold_protocol.errors import InvalidEventError
from refold_protocol.ids import CallId
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
from refold_protocol.session.messages import ToolCallBlock
from refold_protocol.session.tape import Tape
from refold_protocol.session.work_state import NO_WORK, OpenCall, Route, Stream, Work


def work_step(state: Work, event: Event) -> Work:
    """Fold one event. Raises InvalidEventError when it may not stand here. O(1), whatever the log's length."""
    data = event.data
    if type(data) is AssistantChunk:
        _unreplied(state, event, data)
        return replace(state, stream=stream_step(state.stream, data, event.seq))
    if event.surface_op is not None and event.surface_op != "append":
        _require(state.step is None, event, "a replace stands between steps")
        return replace(state, landed=True) if state.compaction is not None and type(data) is UserMessage else state
    step = _STEPS.get(type(data))
    return state if step is None else step(state, event, data)


def fold_work(events: Iterable[Event], state: Work = NO_WORK) -> Work:
    """Fold `events`, going on from `state`."""
    for event in events:
        state = work_step(state, event)
    return state


def _turn_start(state: Work, event: Event, data: TurnStart) -> Work:
    _outside_turn(state, event)
    if data.turn != state.last_turn + 1:
        raise _refused(event, f"turn {data.turn} after turn {state.last_turn}")
    return replace(state, turn=data.turn, last_turn=data.turn, last_step=0, prompted=False)


def _turn_end(state: Work, event: Event, data: TurnEnd) -> Work:
    if data.turn != state.turn:
        raise _refused(event, f"turn {data.turn} is not open")
    if state.step is not None:
        raise _refused(event, f"step {state.step} is open")
    return replace(state, turn=None)


def _step_start(state: Work, event: Event, data: StepStart) -> Work:
    _require(data.turn == state.turn and state.step is None, event, "a step opens in its turn, outside other steps")
    if data.step != state.last_step + 1:
        raise _refused(event, f"step {data.step} after step {state.last_step}")
    return replace(state, step=data.step, last_step=data.step, sent=False)


def _step_end(state: Work, event: Event, data: StepEnd) -> Work:
    _in_step(state, event, data.turn, data.step)
    _require(not state.calls, event, "calls wait for their results")
    _require(not state.approvals, event, "approvals wait for a decision")
    return replace(state, step=None, stream=_NO_STREAM, replied=False)


def _instance_start(state: Work, event: Event, data: InstanceStart) -> Work:
    _outside_turn(state, event)
    if data.instance != state.instance + 1:
        raise _refused(event, f"instance {data.instance} after {state.instance}")
    return replace(state, instance=data.instance, began=event.seq)


def _compact_start(state: Work, event: Event, data: CompactStart) -> Work:  # noqa: ARG001
    _require(state.step is None, event, "a compaction stands between steps")
    return replace(state, compaction=event.seq, landed=False)


def _compact_end(state: Work, event: Event, data: CompactEnd) -> Work:  # noqa: ARG001
    _require(state.compaction is not None, event, "no compaction is open")
    return replace(state, compaction=None, landed=False)


def _user_message(state: Work, event: Event, data: UserMessage) -> Work:  # noqa: ARG001
    first = state.turn is not None and state.last_step == 0 and not state.prompted
    _require(first, event, "a turn has one prompt, which joins before its first step")
    return replace(state, prompted=True)


def _steering_message(state: Work, event: Event, data: SteeringMessage) -> Work:
    _require(data.turn == state.turn and state.step is None, event, "steering joins before a step of its turn")
    return state


def _context_message(state: Work, event: Event, data: ContextMessage) -> Work:  # noqa: ARG001
    after_results = state.replied and not state.calls
    _require(state.turn is not None, event, "context joins inside a turn")
    _require(state.step is None or after_results, event, "context joins before a step or after the last result")
    return state


def _assistant_message(state: Work, event: Event, data: AssistantMessage) -> Work:
    _unreplied(state, event, data)
    calls = tuple([OpenCall(CallId(one.id), one.name, one.arguments) for one in data.content if isinstance(one, ToolCallBlock)])
    _require(len({call.id for call in calls}) == len(calls), event, "two calls of one reply have the same id")
    return replace(state, replied=True, calls=calls, stream=_NO_STREAM)


def _tool_call(state: Work, event: Event, data: ToolCall) -> Work:
    _in_step(state, event, data.turn, data.step)
    call = _open_call(state, event, data.call_id)
    if call.started is not None:
        raise _refused(event, f"call {call.id} started before")
    return replace(state, calls=_changed(state.calls, replace(call, started=event.seq)))


def _tool_result(state: Work, event: Event, data: ToolResult) -> Work:
    _in_step(state, event, data.turn, data.step)
    call = _open_call(state, event, data.call_id)
    return replace(state, calls=tuple([one for one in state.calls if one is not call]))


def _asked(state: Work, event: Event, data: ApprovalAsked) -> Work:
    call = _open_call(state, event, data.call_id)
    calls = _changed(state.calls, replace(call, approval="asked"))
    return replace(state, calls=calls, approvals=(*state.approvals, (data.id, data.call_id)))


def _request_sent(state: Work, event: Event, data: RequestSent) -> Work:
    if data.purpose != "step":
        return state
    _unreplied(state, event, data)
    return replace(state, sent=True)


def _retry(state: Work, event: Event, data: LlmRetry) -> Work:
    _unreplied(state, event, data)
    return state


def _header(state: Work, event: Event, data: RequestHeader) -> Work:
    return _routed(state, event, data.header.config)


def _header_delta(state: Work, event: Event, data: RequestHeaderDelta) -> Work:
    return _routed(state, event, data.config)


def _routed(state: Work, event: Event, config: CallConfig | None) -> Work:
    """A step has one request, and a retry sends its bytes again: so nothing changes the header once it left."""
    _require(
        state.step is not None and not state.sent and not state.replied, event, "a header stands in a step, before its request"
    )
    return state if config is None else replace(state, route=Route(config.provider, config.model))


def _decided(state: Work, event: Event, data: ApprovalDecided) -> Work:
    asked = next((row for row in state.approvals if row[0] == data.id), None)
    if asked is None:
        raise InvalidEventError(f"event {event.seq} decides {data.id}, which is not open", seq=event.seq)
    call = next((call for call in state.calls if call.id == asked[1]), None)
    calls = state.calls if call is None else _changed(state.calls, replace(call, approval=data.outcome))
    return replace(state, calls=calls, approvals=tuple(row for row in state.approvals if row is not asked))


def stream_step(stream: Stream, data: AssistantChunk, seq: int) -> Stream:
    """Give the stream with one more chunk: the first one of another attempt begins anew."""
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
    return tuple([changed if call.id == changed.id else call for call in calls])


def _outside_turn(state: Work, event: Event) -> None:
    if state.turn is not None:
        raise _refused(event, f"turn {state.turn} is open")


def _unreplied(state: Work, event: Event, data: AssistantChunk | AssistantMessage | RequestSent | LlmRetry) -> None:
    _in_step(state, event, data.turn, data.step)
    _require(not state.replied, event, "the step has its reply")


def _in_step(state: Work, event: Event, turn: int | None, step: int | None) -> None:
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


_NO_STREAM: Final = Stream()

_STEPS: Final[dict[type, Callable[[Work, Event, Any], Work]]] = {
    TurnStart: _turn_start,
    TurnEnd: _turn_end,
    StepStart: _step_start,
    StepEnd: _step_end,
    InstanceStart: _instance_start,
    CompactStart: _compact_start,
    CompactEnd: _compact_end,
    UserMessage: _user_message,
    SteeringMessage: _steering_message,
    ContextMessage: _context_message,
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
"""What each type of data does to the state; no other changes it. A table, because a log is opened as fast as it is folded."""
