"""Owns the data of events about requests and their effects: headers, bytes sent, tools, approvals, compaction, titles.

Shapes only; the table that names their event types is in `events.py`. Every struct tolerates fields it does not know.
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from refold_protocol.ids import ApprovalId, CallId
from refold_protocol.json_text import JsonText
from refold_protocol.session.course_data import TurnError
from refold_protocol.session.header_types import CallConfig, EpochHeader, SystemDelta, ToolsDelta
from refold_protocol.session.messages import Message, ResultBlock, Source, Usage

SeqRange: TypeAlias = tuple[int, int]
"""First and last seq of a run of events, both included."""


class ToolCall(Struct, frozen=True, gc=False, rename="camel"):
    """A call is about to run. `arguments` is the model's text after the adapter's named repairs."""

    turn: int
    step: int
    call_id: CallId
    name: str
    arguments: str


class ToolErrorInfo(Struct, frozen=True, gc=False):
    """Which error: `code` is the stable identifier (`UNKNOWN_TOOL`, …), `name` the class."""

    name: str
    code: str


class ToolResult(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """The answer to a call, exactly as the model sees it."""

    turn: int
    step: int
    call_id: CallId
    content: tuple[ResultBlock, ...]
    is_error: bool
    error: ToolErrorInfo | None = None
    meta: JsonText | None = None


class RequestHeader(Struct, frozen=True, gc=False):
    """The whole header: `reason` is `initial`, `resume` or `fallback`."""

    header: EpochHeader
    reason: str


class RequestHeaderDelta(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """What changed in the header. An empty `message_prefix` says that there is none any more."""

    system: SystemDelta | None = None
    tools: ToolsDelta | None = None
    config: CallConfig | None = None
    message_prefix: tuple[Message, ...] | None = None


class EncoderId(Struct, frozen=True, gc=False):
    """Which encoder made a body; its version rises when any byte may change."""

    name: str
    version: int


class RequestSent(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """Bytes are about to leave for a provider. `bytes` counts the body, `sha256` is of the body, `request_sha256` of the
    canonical Request, independent of any encoder. `purpose` is `step` or `summary`."""

    purpose: str
    attempt: int
    encoder: EncoderId
    bytes: int
    sha256: str
    request_sha256: str
    turn: int | None = None
    step: int | None = None


class PluginFailed(Struct, frozen=True, gc=False, omit_defaults=True):
    """A plugin failed at a seam and the loop went on as that seam says: without it, or by refusing what it guarded."""

    plugin: str
    seam: str
    message: str
    turn: int | None = None
    step: int | None = None


class LlmRetry(Struct, frozen=True, gc=False, rename="camel"):
    """A further attempt follows after `delay_ms` milliseconds; `code` is the kind of the error that caused it."""

    turn: int
    step: int
    attempt: int
    code: str
    delay_ms: int


class ApprovalSubject(Struct, frozen=True, gc=False):
    """What exactly would happen: `kind` is `command`, `diff`, `path` or `text`."""

    kind: str
    text: str


class ApprovalAsked(Struct, frozen=True, gc=False, rename="camel"):
    """A person is asked whether a call may run."""

    id: ApprovalId
    call_id: CallId
    tool: str
    subject: ApprovalSubject


class ApprovalDecided(Struct, frozen=True, gc=False):
    """The answer: `outcome` is `allowed`, `denied` or `cancelled`, `scope` is `once` or `session`."""

    id: ApprovalId
    outcome: str
    scope: str
    by: Source


class CompactStart(Struct, frozen=True, gc=False, omit_defaults=True):
    """A compaction begins over the surface nodes `range`; with `config` and `instructions` its request can be rebuilt."""

    trigger: str
    range: SeqRange
    instructions: str
    config: CallConfig
    turn: int | None = None


class CompactSummary(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """What a compaction's model wrote, and what it stands for."""

    summary: str
    shadowed: tuple[SeqRange, ...]
    shadowed_tokens: int
    model: str
    max_tokens: int
    usage: Usage | None = None


class CompactEnd(Struct, frozen=True, gc=False, omit_defaults=True):
    """A compaction is over; with `error` it changed nothing."""

    error: TurnError | None = None


class SessionTitle(Struct, frozen=True, gc=False):
    """The session's name; the last one wins."""

    title: str
    by: Source


class Todo(Struct, frozen=True, gc=False):
    """One line of a plan: `status` is `pending`, `in_progress` or `completed`."""

    content: str
    status: str


class TodoWrite(Struct, frozen=True, gc=False):
    """The whole plan; the last one wins."""

    todos: tuple[Todo, ...]
