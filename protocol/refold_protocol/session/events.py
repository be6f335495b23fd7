"""Vocabulary of the session log: the envelope and the table of event types.

`EVENT_TYPES` is the one table of types. Types that are not in it are foreign: a plugin's, or a later release's. Their
data is kept as text. The structs of data are in `course_data.py` and `effect_data.py` and named here once more, so that
users of events import them from one place. Every struct tolerates fields it does not know, because the stored line, not
the struct, is the truth. Never reads or writes JSON itself (`codec.py` does).

Foreign event types that this process can read: those that its plugins registered, beside the vocabulary.

The one piece of state in the core that is not an argument. It says what the running code knows, as an import does, and it
shapes nothing: a foreign event is log-only, every fold passes it by, so a request is the same whether its type is known or
not. What is at stake is only whether a reader may go on (`codec.refuse_foreign`), and every reader of a log asks that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from refold_protocol.json_text import JsonText
from refold_protocol.session.event_data import (
    AbortCause,
    ApprovalAsked,
    ApprovalDecided,
    ApprovalSubject,
    AssistantChunk,
    AssistantMessage,
    ClientInfo,
    CompactEnd,
    CompactionSettings,
    CompactStart,
    CompactSummary,
    ContextMessage,
    EncoderId,
    InputAccepted,
    InputSettled,
    InstanceStart,
    LimitSettings,
    LlmRetry,
    ModelWindow,
    PermissionSettings,
    PluginFailed,
    RequestHeader,
    RequestHeaderDelta,
    RequestSent,
    SeqRange,
    SessionSettings,
    SessionTitle,
    SteeringMessage,
    StepEnd,
    StepStart,
    ToolCall,
    ToolErrorInfo,
    ToolResult,
    Trigger,
    TurnEnd,
    TurnEndReason,
    TurnError,
    TurnStart,
    UnusedSummary,
    UserMessage,
)

__all__ = [
    "EVENT_TYPES",
    "FORMAT_VERSION",
    "SURFACE_TYPES",
    "TYPE_OF_DATA",
    "AbortCause",
    "ApprovalAsked",
    "ApprovalDecided",
    "ApprovalSubject",
    "AssistantChunk",
    "AssistantMessage",
    "ClientInfo",
    "CompactEnd",
    "CompactStart",
    "CompactSummary",
    "CompactionSettings",
    "ContextMessage",
    "Draft",
    "EncoderId",
    "Event",
    "EventData",
    "EventType",
    "ForeignData",
    "InputAccepted",
    "InputSettled",
    "InstanceStart",
    "LimitSettings",
    "LlmRetry",
    "ModelWindow",
    "PermissionSettings",
    "PluginFailed",
    "Replace",
    "RequestHeader",
    "RequestHeaderDelta",
    "RequestSent",
    "SeqRange",
    "SessionSettings",
    "SessionTitle",
    "SteeringMessage",
    "StepEnd",
    "StepStart",
    "SurfaceOp",
    "ToolCall",
    "ToolErrorInfo",
    "ToolResult",
    "Trigger",
    "TurnEnd",
    "TurnEndReason",
    "TurnError",
    "TurnStart",
    "UnusedSummary",
    "UserMessage",
]


class Replace(Struct, frozen=True, gc=False, tag="replace", tag_field="op"):
    """Take the closed positional range between two current surface nodes, `start` and `end`, and put this event there."""

    start: int
    end: int


SurfaceOp: TypeAlias = Literal["append"] | Replace


class ForeignData(Struct, frozen=True, gc=False):
    """Data of a type that is not in the vocabulary: the text of any JSON value."""

    json: JsonText


EventData: TypeAlias = (
    InstanceStart
    | SessionSettings
    | InputAccepted
    | InputSettled
    | TurnStart
    | TurnEnd
    | StepStart
    | StepEnd
    | UserMessage
    | ContextMessage
    | SteeringMessage
    | AssistantChunk
    | AssistantMessage
    | ToolCall
    | ToolResult
    | RequestHeader
    | RequestHeaderDelta
    | RequestSent
    | LlmRetry
    | ModelWindow
    | PluginFailed
    | ApprovalAsked
    | ApprovalDecided
    | CompactStart
    | CompactSummary
    | CompactEnd
    | SessionTitle
    | ForeignData
)


class Event(Struct, frozen=True, gc=False):
    """One event of a log, decoded, together with its exact line.

    `seq` equals the number of events before it; `time` is Unix epoch milliseconds and never goes back. `sources` are
    ascending, disjoint ranges of earlier events, or None where none were recorded. `line` is the JSON text that is
    stored, chained and sent, without a line break: it may hold more than the other fields show.
    """

    type: str
    seq: int
    time: int
    data: EventData
    surface_op: SurfaceOp | None
    sources: tuple[SeqRange, ...] | None
    ignorable: bool
    line: bytes


class Draft(Struct, frozen=True, gc=False):
    """An event that the log has not accepted: the writer gives it its seq and, unless `time` is set, its time.

    `type` is needed for ForeignData only. `time` is for closers, which reuse the time of the last event.
    """

    data: EventData
    surface_op: SurfaceOp | None = None
    sources: tuple[SeqRange, ...] | None = None
    ignorable: bool = False
    type: str | None = None
    time: int | None = None


class EventType(Struct, frozen=True, gc=False):
    """A row of the vocabulary: the struct of its data, whether it is a surface type, whether a reader may skip it."""

    data: type[Struct]
    surface: bool = False
    ignorable: bool = False


EVENT_TYPES: Final[dict[str, EventType]] = {
    "instance/start": EventType(InstanceStart),
    "session/settings": EventType(SessionSettings),
    "input/accepted": EventType(InputAccepted),
    "input/settled": EventType(InputSettled),
    "turn/start": EventType(TurnStart),
    "turn/end": EventType(TurnEnd),
    "step/start": EventType(StepStart),
    "step/end": EventType(StepEnd),
    "user/message": EventType(UserMessage, surface=True),
    "context/message": EventType(ContextMessage, surface=True),
    "steering/message": EventType(SteeringMessage, surface=True),
    "assistant/chunk": EventType(AssistantChunk),
    "assistant/message": EventType(AssistantMessage, surface=True),
    "tool/call": EventType(ToolCall),
    "tool/result": EventType(ToolResult, surface=True),
    "request/header": EventType(RequestHeader),
    "request/header-delta": EventType(RequestHeaderDelta),
    "request/sent": EventType(RequestSent, ignorable=True),
    "llm/retry": EventType(LlmRetry),
    "model/window": EventType(ModelWindow, ignorable=True),
    "plugin/failed": EventType(PluginFailed, ignorable=True),
    "approval/asked": EventType(ApprovalAsked),
    "approval/decided": EventType(ApprovalDecided),
    "compact/start": EventType(CompactStart),
    "compact/summary": EventType(CompactSummary),
    "compact/end": EventType(CompactEnd),
    "session/title": EventType(SessionTitle),
}
"""The vocabulary of FORMAT_VERSION 0."""

TYPE_OF_DATA: Final[dict[type, str]] = {row.data: name for name, row in EVENT_TYPES.items()}
"""The event type that belongs to a struct of data."""

SURFACE_TYPES: Final[frozenset[str]] = frozenset(name for name, row in EVENT_TYPES.items() if row.surface)
"""Types whose events become nodes of the surface."""

FORMAT_VERSION: Final = 0
"""Version of log and store. Any other one is refused, never migrated and never guessed."""


_READABLE: Final[Counter[str]] = Counter()


@contextmanager
def readable(types: Iterable[str]) -> Generator[None]:
    """Let logs with events of these foreign types be read inside. May be nested; what was readable before stays so."""
    names = tuple(types)
    _READABLE.update(names)
    try:
        yield
    finally:
        _READABLE.subtract(names)


def is_readable(name: str) -> bool:
    """Tell whether a plugin of this process brought the foreign type `name`."""
    return _READABLE[name] > 0


def plugin_of(name: str) -> str | None:
    """Give the plugin that a foreign type belongs to: its name stands before the first `/`."""
    plugin, slash, rest = name.partition("/")
    return plugin if plugin and slash and rest else None
