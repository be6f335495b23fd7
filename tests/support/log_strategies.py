"""Random logs: each next event is drawn from those that the grammar lets follow.

`moves` proposes events that are right and events that are wrong where they would stand; the grammar alone chooses among
them. So a random log is what the grammar calls well formed, and a test may hold that against rules of its own. What no
writer would do and the grammar need not know is left out: a request without a header, a reply without a request.
"""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import strategies as st
from msgspec import Struct

from refold_protocol.dialects.dialect import Dialect
from refold_protocol.errors import InvalidEventError, SessionCorruptionError
from refold_protocol.ids import ApprovalId, CallId, InputId
from refold_protocol.json_text import JsonText
from refold_protocol.session.event_data import COMPLETED, MAX_TOKENS, aborted, blocked
from refold_protocol.session.events import (
    TYPE_OF_DATA,
    AbortCause,
    ApprovalAsked,
    ApprovalDecided,
    ApprovalSubject,
    AssistantChunk,
    AssistantMessage,
    CompactEnd,
    CompactStart,
    CompactSummary,
    ContextMessage,
    Draft,
    EncoderId,
    Event,
    ForeignData,
    InputAccepted,
    InputSettled,
    InstanceStart,
    LlmRetry,
    Replace,
    RequestHeader,
    RequestHeaderDelta,
    RequestSent,
    SeqRange,
    SessionTitle,
    SteeringMessage,
    StepEnd,
    StepStart,
    ToolCall,
    ToolResult,
    Trigger,
    TurnEnd,
    TurnError,
    TurnStart,
    UserMessage,
)
from refold_protocol.session.grammar import turn_step
from refold_protocol.session.header import diff_header
from refold_protocol.session.messages import (
    Block,
    BlockEnd,
    BlockStart,
    CallConfig,
    Chunk,
    EpochHeader,
    FinishChunk,
    ReasoningBlock,
    ReasoningDelta,
    SystemDelta,
    TextBlock,
    TextDelta,
    ToolCallBlock,
    ToolCallDelta,
    ToolsDelta,
    Usage,
    UsageChunk,
    text_content,
)
from refold_protocol.session.request import horizon_step
from tests.support.logs import CLIENT, HEADER, Log

_OTHER_HEADER = EpochHeader(CallConfig("engine", "random", "chat-completions"), "Be thorough.")
_CHUNKS: tuple[Chunk, ...] = (
    BlockStart(0, "text"),
    TextDelta(0, "那🙂"),
    ReasoningDelta(1, "hm"),
    ToolCallDelta(2, '{"path":'),
    BlockEnd(0),
    TextDelta(3, " \n"),
    UsageChunk(Usage(11, 5)),
    FinishChunk("stop"),
)
_USAGES = (None, Usage(11, 5), Usage(300, 40, 200, 20, 30), Usage(0, 0))
_ENDS = (COMPLETED, MAX_TOKENS, blocked("no"), aborted(AbortCause("user")))


_FLAVOURS = st.integers(0, 7)
_PLACES = st.integers(0, 64 * 64 - 1)


class _Luck(Struct, frozen=True):
    """What was drawn for one event: a flavour for its content, and two places of the surface."""

    flavour: int
    one: int
    two: int


@st.composite
def logs(draw: st.DrawFn, max_events: int = 60, dialect: Dialect | None = None) -> Log:
    """Random logs, open or not at their end; bodies of requests are made by `dialect`."""
    log = Log(dialect)
    for _ in range(draw(st.integers(0, max_events))):
        luck = _Luck(draw(_FLAVOURS), *divmod(draw(_PLACES), 64))
        draft = draw(st.sampled_from(_allowed(log, luck)))
        if isinstance(draft.data, RequestSent):
            log.send(draft.data.attempt)
        else:
            log.write(draft)
    return log


def _allowed(log: Log, luck: _Luck) -> list[Draft]:
    allowed: list[Draft] = []
    last, legal = None, False
    for move in moves(log, luck):
        if move is not last:  # what stands several times is asked about once
            last, legal = move, may_follow(log, move)
        if legal:
            allowed.append(move)
    return allowed


def may_follow(log: Log, draft: Draft) -> bool:
    """Tell whether the grammar lets `draft` follow, and a writer would write it."""
    name = draft.type or TYPE_OF_DATA[type(draft.data)]
    event = Event(name, len(log.events), 0, draft.data, draft.surface_op, draft.sources, draft.ignorable, b"")
    try:
        turn_step(log.work, event)
        horizon_step(log.request_state, event)
    except (InvalidEventError, SessionCorruptionError):
        return False
    return True


def moves(log: Log, luck: _Luck) -> Iterator[Draft]:
    """Give events that may or may not follow. What should happen often stands several times."""
    yield from _course(log, luck)
    yield from _request(log, luck)
    yield from _tools(log, luck)
    yield from _surface(log, luck)
    yield from _replaces(log, luck)
    yield from _free(log, luck)


def _course(log: Log, luck: _Luck) -> Iterator[Draft]:
    work = log.work
    turn, step = work.last_turn, work.last_step
    trigger = Trigger("message", CLIENT)
    yield from [Draft(TurnStart(turn + 1, trigger))] * 4
    yield Draft(TurnStart(turn + 2, trigger))
    yield Draft(TurnEnd(turn, _ENDS[luck.flavour % len(_ENDS)]))
    yield Draft(TurnEnd(turn + 1, COMPLETED))
    yield from [Draft(StepStart(turn, step + 1))] * 5
    yield Draft(StepStart(turn, step + 2))
    yield Draft(StepStart(turn + 1, 1))
    yield Draft(StepEnd(turn, step, ("ok", "overflow", "error", "aborted")[luck.flavour % 4]))
    yield Draft(StepEnd(turn, step + 1))
    yield Draft(InstanceStart(work.instance + 1, "fork" if luck.flavour == 3 else "resume"))
    yield Draft(InstanceStart(work.instance + 2, "resume"))


def _request(log: Log, luck: _Luck) -> Iterator[Draft]:
    work = log.work
    turn, step = work.last_turn, work.last_step
    attempt, following = work.sent, work.sent + 1 + (luck.flavour == 7)
    yield from _headers(log, luck)
    yield from [Draft(RequestSent("step", following, EncoderId("?", 0), 0, "", "", turn, step))] * 4
    yield Draft(RequestSent("step", following, EncoderId("?", 0), 0, "", ""))
    yield Draft(LlmRetry(turn, step, attempt, "provider.timeout", 10))
    yield from [Draft(AssistantChunk(turn, step, attempt, _CHUNKS[luck.one % len(_CHUNKS)]))] * 4
    yield Draft(AssistantChunk(turn, step + 1, attempt, _CHUNKS[0]))
    model, usage, interrupted = ("chain", "chain", "random")[luck.one % 3], _USAGES[luck.two % 4], luck.one % 5 == 4
    message = AssistantMessage(turn, step, _content(log, luck), "engine", model, "stop", usage, interrupted)
    cited = (work.stream.ranges, work.stream.ranges, work.stream.ranges[:-1], None)[luck.two // 4 % 4]
    yield from [Draft(message, "append", cited)] * 6
    yield Draft(AssistantMessage(turn, step + 1, (), "engine", "chain", "stop"), "append", ())


def _headers(log: Log, luck: _Luck) -> Iterator[Draft]:
    wanted = (HEADER, _OTHER_HEADER)[luck.flavour % 2]
    yield from [Draft(RequestHeader(wanted, "fallback"))] * 2
    delta = diff_header(log.request_state.header or HEADER, wanted)
    assert delta is not None
    yield from [Draft(delta)] * 2
    yield Draft(RequestHeaderDelta(system=SystemDelta(1, ("Be kind.",), luck.two % 2)))
    yield Draft(RequestHeaderDelta(tools=ToolsDelta(("read_file",), (), ())))


def _content(log: Log, luck: _Luck) -> tuple[Block, ...]:
    one, two = (ToolCallBlock(f"c{len(log.events)}_{n}", "read_file", "{}") for n in (1, 2))
    contents: tuple[tuple[Block, ...], ...] = (
        (),
        (TextBlock("Because."),),
        (TextBlock(" \n"), ReasoningBlock("hm")),
        (ReasoningBlock("hm"), one),
        (TextBlock("Look:"), one, two),
        (one, two),
        (two,),
        (one, one),
    )
    return contents[luck.flavour]


def _tools(log: Log, luck: _Luck) -> Iterator[Draft]:
    work = log.work
    turn, step = work.last_turn, work.last_step
    for name in (*(call.id for call in work.calls), CallId("nobody's")):
        yield from [Draft(ToolCall(turn, step, name, "read_file", "{}"))] * 2
        result = ToolResult(turn, step, name, text_content(f"r{len(log.events)}"), is_error=luck.flavour == 0)
        yield from [Draft(result, "append")] * 2
        subject = ApprovalSubject("command", "rm -r build")
        yield Draft(ApprovalAsked(ApprovalId(f"ap{len(log.events)}"), name, "read_file", subject))
    for approval in (*(row[0] for row in work.approvals), ApprovalId("nobody's")):
        outcome = ("allowed", "denied", "cancelled")[luck.flavour % 3]
        yield from [Draft(ApprovalDecided(approval, outcome, "once", CLIENT))] * 2


def _surface(log: Log, luck: _Luck) -> Iterator[Draft]:
    turn = log.work.last_turn
    content = text_content(f"m{len(log.events)}")
    given = (None, InputId("in0"), InputId("in1"))[luck.one % 3]
    yield from [Draft(UserMessage(content, CLIENT, given), "append")] * 3
    yield Draft(ContextMessage(content, CLIENT, ("context", "raw")[luck.flavour % 2], given), "append")
    yield Draft(SteeringMessage(turn, content, CLIENT, given), "append")
    yield Draft(SteeringMessage(turn + 1, content, CLIENT), "append")


def _replaces(log: Log, luck: _Luck) -> Iterator[Draft]:
    nodes = log.surface.nodes
    if not nodes:
        return
    first, last = luck.one % len(nodes), luck.two % len(nodes)
    op = Replace(nodes[first].seq, nodes[last].seq)
    cited = tuple((seq, seq) for seq in sorted(node.seq for node in nodes[first : last + 1]))
    summary = UserMessage(text_content(f"s{len(log.events)}"), CLIENT)
    yield Draft(summary, op, cited)
    yield Draft(summary, op, cited[1:])
    whole = Replace(nodes[0].seq, nodes[last].seq)
    yield Draft(summary, whole, tuple((seq, seq) for seq in sorted(node.seq for node in nodes[: last + 1])))
    for node in nodes:
        if isinstance(node.data, ToolResult):
            pruned = ToolResult(node.data.turn, node.data.step, node.data.call_id, text_content("(pruned)"), is_error=False)
            yield from [Draft(pruned, Replace(node.seq, node.seq), ((node.seq, node.seq),))] * 2
            yield Draft(pruned, op, cited)


def _free(log: Log, luck: _Luck) -> Iterator[Draft]:
    name = InputId(f"in{luck.flavour % 3}")
    yield Draft(CompactEnd(TurnError("provider.refused", "No.") if luck.flavour % 2 else None))
    yield (
        Draft(InputAccepted(name, "prompt", text_content(f"i{len(log.events)}"), CLIENT)),
        Draft(InputSettled(name, ("withdrawn", "blocked", "aborted")[luck.flavour % 3])),
        Draft(SessionTitle("Why", CLIENT)),
        Draft(ForeignData(JsonText("[1]")), type="plugin/note", ignorable=True),
        Draft(CompactStart("pressure", _region(log, luck), "Sum up.", HEADER.config, log.work.turn)),
        Draft(CompactSummary("They asked.", ((0, 0),), 10, "chain", 512)),
    )[luck.two % 6]


def _region(log: Log, luck: _Luck) -> SeqRange:
    nodes = log.surface.nodes
    return (nodes[0].seq, nodes[luck.one % len(nodes)].seq) if nodes else (0, 0)
