"""Writing of whole logs for tests: event by event under the log's own grammar, with the folds kept beside.

Events are sealed as a writer seals them, so their lines are exact. Times are TIME plus the seq. A part of a turn that a
test does not care about (its header, its request) is put in by the method that needs it. `log_strategies.py` draws
random logs with the same builder.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from refold_protocol.dialects.dialect import Dialect
from refold_protocol.ids import CallId, InputId
from refold_protocol.json_text import JsonText
from refold_protocol.session.closers import closers_of
from refold_protocol.session.codec import seal
from refold_protocol.session.event_data import COMPLETED, INTERRUPTED
from refold_protocol.session.events import (
    AssistantChunk,
    AssistantMessage,
    CompactEnd,
    CompactStart,
    CompactSummary,
    Draft,
    EncoderId,
    Event,
    InputAccepted,
    InstanceStart,
    Replace,
    RequestSent,
    StepEnd,
    StepStart,
    ToolCall,
    ToolResult,
    Trigger,
    TurnEnd,
    TurnEndReason,
    TurnError,
    TurnStart,
    UserMessage,
)
from refold_protocol.session.grammar import NO_TURN, TurnState, turn_step
from refold_protocol.session.header import header_draft
from refold_protocol.session.messages import (
    Block,
    BlockEnd,
    BlockStart,
    CallConfig,
    Chunk,
    EpochHeader,
    FinishChunk,
    Source,
    TextDelta,
    ToolCallBlock,
    ToolSchema,
    Usage,
    text_content,
)
from refold_protocol.session.request import (
    NO_REQUESTS,
    Request,
    RequestState,
    horizon_step,
    request_of,
    request_sha256,
    summary_request_of,
)
from refold_protocol.session.surface import Surface
from refold_server.compaction.compaction_decision import COMPACTION, ranges_of

TIME = 1_790_000_000_000
CLIENT = Source("client", "nvim")
LOOP = Source("loop")
HEADER = EpochHeader(
    CallConfig("engine", "chain", "chat-completions"),
    "Be brief.",
    (ToolSchema("read_file", "Reads a file.", JsonText('{"type":"object"}')),),
)


def call(name: str, arguments: str = "{}") -> ToolCallBlock:
    """Give a call of `read_file` with the id `name`."""
    return ToolCallBlock(name, "read_file", arguments)


def spoken(text: str, index: int = 0) -> tuple[Chunk, ...]:
    """Give the chunks of one whole text block."""
    return (BlockStart(index, "text"), TextDelta(index, text), BlockEnd(index))


class Log:
    """A log that grows. `events` so far; `work` and `request_state` are the folds after them. Bodies of requests are made by
    `dialect`; without one they are nobody's, and say so."""

    def __init__(self, dialect: Dialect | None = None) -> None:
        self.dialect = dialect
        self.events: list[Event] = []
        self.work: TurnState = NO_TURN
        self.request_state: RequestState = NO_REQUESTS

    @property
    def surface(self) -> Surface:
        """What the model sees now, as nodes."""
        return self.request_state.surface

    @property
    def lines(self) -> list[bytes]:
        """The exact lines."""
        return [event.line for event in self.events]

    def add(self, data: Any, **envelope: Any) -> Event:
        """Write one event. Raises InvalidEventError, and nothing is written, when it may not stand here."""
        return self.write(Draft(data, **envelope))

    def write(self, draft: Draft) -> Event:
        """Write the event of a draft, under the same rule."""
        event = seal(draft, len(self.events), TIME + len(self.events))
        work, request_state = turn_step(self.work, event), horizon_step(self.request_state, event)
        self.events.append(event)
        self.work, self.request_state = work, request_state
        return event

    def append(self, data: Any, **envelope: Any) -> Event:
        """Write a surface event at the tail of the surface."""
        return self.add(data, surface_op="append", **envelope)

    def replace(self, data: Any, start: int, end: int) -> Event:
        """Write a surface event in place of the nodes from `start` to `end` (seqs), citing exactly those."""
        seqs = [node.seq for node in self.surface.nodes]
        shadowed = sorted(seqs[seqs.index(start) : seqs.index(end) + 1])
        sources = tuple((seq, seq) for seq in shadowed)
        return self.add(data, surface_op=Replace(start, end), sources=sources)

    def instance(self, reason: str = "new") -> Event:
        """Begin the next loop instance."""
        return self.add(InstanceStart(self.work.instance + 1, reason))

    def accept(self, name: str, text: str = "?", mode: str = "prompt") -> InputId:
        """Accept an input under the id `name`."""
        self.add(InputAccepted(InputId(name), mode, text_content(text), CLIENT))
        return InputId(name)

    def turn(self, text: str | None = "Why?", given: InputId | None = None) -> int:
        """Open the next turn, with a prompt unless `text` is None. Gives its number."""
        number = self.work.last_turn + 1
        self.add(TurnStart(number, Trigger("message", CLIENT, given)))
        if text is not None:
            self.append(UserMessage(text_content(text), CLIENT, given))
        return number

    def step(self, header: EpochHeader | None = None) -> tuple[int, int]:
        """Open the next step and send its request, under `header` where that is not the one in force. Gives turn and step."""
        assert self.work.turn is not None
        number = self.work.last_step + 1
        self.add(StepStart(self.work.turn, number))
        recorded = self.request_state.header
        draft = header_draft(recorded, header or recorded or HEADER, anchored=True)
        if draft is not None:
            self.write(draft)
        self.send()
        return self.work.turn, number

    def send(self, attempt: int = 1) -> Event:
        """Record that the open step's request leaves."""
        return self._sent("step", attempt, request_of(self.request_state), *self.here())

    def send_summary(self, attempt: int = 1) -> Event:
        """Record that the request of the open compaction leaves."""
        return self._sent("summary", attempt, summary_request_of(self.request_state), self.work.turn)

    def compaction(
        self,
        start: int,
        end: int,
        text: str | None = "They asked why.",
        config: CallConfig | None = None,
        usage: Usage | None = None,
    ) -> Event:
        """Sum up the nodes from `start` to `end` (seqs), a failure where `text` is None; give its `compact/start`. `config`
        is that of the model that sums up, by default of the one that was asked last."""
        header = self.request_state.header
        assert header is not None
        began = self.add(CompactStart("pressure", (start, end), "Sum up.", config or header.config, self.work.turn))
        self.send_summary()
        if text is not None:
            seqs = [node.seq for node in self.surface.nodes]
            shadowed = ranges_of(seqs[seqs.index(start) : seqs.index(end) + 1])
            self.add(CompactSummary(text, shadowed, 1000, "engine/chain", 512, usage))
            self.replace(UserMessage(text_content(text), COMPACTION), start, end)
        self.add(CompactEnd(None if text is not None else TurnError("compaction.failed", "It is blank.")))
        return began

    def _sent(self, purpose: str, attempt: int, request: Request, *place: int | None) -> Event:
        body = b"" if self.dialect is None else self.dialect.encode(request, {})
        encoder = EncoderId("no-such-dialect", 1) if self.dialect is None else self.dialect.encoder
        digests = sha256(body).hexdigest(), request_sha256(request)
        return self.add(RequestSent(purpose, attempt, encoder, len(body), *digests, *place))

    def here(self) -> tuple[int, int]:
        """Give the open turn and step."""
        assert self.work.turn is not None
        assert self.work.step is not None
        return self.work.turn, self.work.step

    def stream(self, *chunks: Chunk, attempt: int = 1) -> None:
        """Record chunks of the open step."""
        for chunk in chunks:
            self.add(AssistantChunk(*self.here(), attempt, chunk))

    def reply(self, *content: Block | str, finish: str = "stop", usage: Usage | None = None) -> Event:
        """Record the open step's reply; a text stands for a text block. Cites what was streamed."""
        blocks = tuple(text_content(block)[0] if isinstance(block, str) else block for block in content)
        config = request_of(self.request_state).header.config
        message = AssistantMessage(*self.here(), blocks, config.provider, config.model, finish, usage)
        return self.append(message, sources=self.work.stream.ranges)

    def call(self, name: str) -> Event:
        """Record that the call `name` of the reply starts."""
        asked = next(call for call in self.work.calls if call.id == name)
        return self.add(ToolCall(*self.here(), asked.id, asked.name, asked.arguments))

    def result(self, name: str, text: str = "found") -> Event:
        """Record the result of the call `name`."""
        return self.append(ToolResult(*self.here(), CallId(name), text_content(text), is_error=False))

    def end_step(self, outcome: str = "ok") -> Event:
        """Close the open step."""
        return self.add(StepEnd(*self.here(), outcome))

    def end_turn(self, reason: TurnEndReason = COMPLETED) -> Event:
        """Close the open turn."""
        assert self.work.turn is not None
        return self.add(TurnEnd(self.work.turn, reason))

    def whole_turn(self, text: str = "Why?", answer: str = "Because.") -> int:
        """Write a turn of one step without calls. Gives its number."""
        number = self.turn(text)
        self.step()
        self.stream(*spoken(answer), FinishChunk("stop"))
        self.reply(answer)
        self.end_step()
        self.end_turn()
        return number

    def tool_step(self, *names: str) -> None:
        """Write a step in which the model makes the calls `names` and gets their results."""
        self.step()
        self.reply(*(call(name) for name in names), finish="tool-calls")
        for name in names:
            self.call(name)
        for name in names:
            self.result(name)
        self.end_step()

    def close(self, reason: TurnEndReason = INTERRUPTED) -> list[Event]:
        """Append the closers, as the next writer would. Gives them."""
        first = len(self.events)
        for draft in closers_of(self.work, self.events[-1].time if self.events else 0, reason):
            self.write(draft)
        return self.events[first:]


def log_of(events: list[Event]) -> Log:
    """Give a log that holds `events` already. Raises what folding them raises."""
    log = Log()
    for event in events:
        log.work, log.request_state = turn_step(log.work, event), horizon_step(log.request_state, event)
        log.events.append(event)
    return log
