"""The transcript: what a person reads of a session, its append-origin projection.

All appended surface events in log order. Compaction copies never appear and originals never vanish; a compaction shows
as a marker at its place, a vetoed prompt and an interrupted reply as what they are, a turn's end where it says more than
"completed".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct

from refold_protocol.ids import InputId
from refold_protocol.session.events import (
    AssistantMessage,
    CompactEnd,
    CompactSummary,
    ContextMessage,
    Event,
    InputAccepted,
    InputSettled,
    SteeringMessage,
    ToolErrorInfo,
    ToolResult,
    TurnEnd,
    TurnEndReason,
    TurnStart,
    UserMessage,
)
from refold_protocol.session.messages import Block, InputBlock, Source, ToolCallBlock, Usage

_CUT_OFF = (
    "The turn was cut off before this prompt joined the history. Unless it stands below as well, it waits: it can be run or "
    "withdrawn."
)


class TranscriptEntry(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """One thing that a person sees. `kind` is `user`, `context`, `steering`, `assistant`, `tool`, `blocked`,
    `pending`, `compaction` or `end`; the set is open. `seq` is that of the event it comes from."""

    seq: int
    time: int
    kind: str
    turn: int | None = None
    step: int | None = None
    content: tuple[Block, ...] = ()
    source: Source | None = None
    interrupted: bool = False
    model: str | None = None
    usage: Usage | None = None
    call_id: str | None = None
    tool: str | None = None
    arguments: str | None = None
    is_error: bool = False
    error: ToolErrorInfo | None = None
    reason: TurnEndReason | None = None
    note: str | None = None


class Transcript:
    """Turns events into entries, one log at a time. Remembers the calls of the last reply, prompts that are undecided, and
    which of them the open turn was started with."""

    def __init__(self) -> None:
        self._calls: dict[str, ToolCallBlock] = {}
        self._inputs: dict[str, tuple[InputBlock, ...]] = {}
        self._summary: CompactSummary | None = None
        self._started: InputId | None = None

    def entries(self, event: Event) -> Iterator[TranscriptEntry]:
        """Give what `event` adds: nothing, one entry or two. Feed every event of the log, in order."""
        if event.surface_op == "append":
            yield self._surface(event)
            return
        match event.data:
            case InputAccepted(input=name, content=content):
                self._inputs[name] = content
            case InputSettled(input=name, how="blocked", reason=reason):
                content = self._inputs.pop(name, ())
                yield TranscriptEntry(event.seq, event.time, "blocked", content=content, note=reason)
            case InputSettled(input=name):
                self._inputs.pop(name, None)
            case CompactSummary() as summary:
                self._summary = summary
            case CompactEnd(error=error):
                summary, self._summary = self._summary, None
                if error is None and summary is not None:
                    yield TranscriptEntry(event.seq, event.time, "compaction", note=summary.summary)
            case TurnStart(trigger=trigger):
                self._started = trigger.input
            case TurnEnd(turn=turn, reason=reason) if reason.kind != "completed":
                content = self._inputs.get(self._started or "")
                if content is not None:
                    yield TranscriptEntry(event.seq, event.time, "pending", turn=turn, content=content, note=_CUT_OFF)
                yield TranscriptEntry(event.seq, event.time, "end", turn=turn, reason=reason)
            case _:
                pass

    def _surface(self, event: Event) -> TranscriptEntry:
        seq, time, data = event.seq, event.time, event.data
        match data:
            case UserMessage(content=content, source=source):
                self._inputs.pop(data.input or "", None)
                return TranscriptEntry(seq, time, "user", content=content, source=source)
            case ContextMessage(content=content, source=source):
                return TranscriptEntry(seq, time, "context", content=content, source=source)
            case SteeringMessage(turn=turn, content=content, source=source):
                return TranscriptEntry(seq, time, "steering", turn=turn, content=content, source=source)
            case AssistantMessage() as reply:
                return self._reply(event, reply)
            case ToolResult() as result:
                return self._result(event, result)
            case _:
                return TranscriptEntry(seq, time, event.type)

    def _reply(self, event: Event, reply: AssistantMessage) -> TranscriptEntry:
        self._calls = {block.id: block for block in reply.content if isinstance(block, ToolCallBlock)}
        return TranscriptEntry(
            event.seq,
            event.time,
            "assistant",
            turn=reply.turn,
            step=reply.step,
            content=reply.content,
            interrupted=reply.interrupted,
            model=f"{reply.provider}/{reply.model}",
            usage=reply.usage,
        )

    def _result(self, event: Event, result: ToolResult) -> TranscriptEntry:
        call = self._calls.get(result.call_id)
        return TranscriptEntry(
            event.seq,
            event.time,
            "tool",
            turn=result.turn,
            step=result.step,
            content=result.content,
            call_id=result.call_id,
            tool=None if call is None else call.name,
            arguments=None if call is None else call.arguments,
            is_error=result.is_error,
            error=result.error,
        )


def transcript(events: Iterable[Event]) -> Iterator[TranscriptEntry]:
    """Give the entries of a whole log, oldest first."""
    reader = Transcript()
    for event in events:
        yield from reader.entries(event)
