"""Data of events about the course of a session: instances, settings, inputs, turns, steps and messages.

Shapes only; the table that names their event types is in `events.py`. Every struct tolerates fields it does not know.

Data of events about requests and their effects: headers, bytes sent, tools, approvals, compaction, titles.

Shapes only; the table that names their event types is in `events.py`. Every struct tolerates fields it does not know.

The ways a turn ends: seven of its own, one that the step limit adds, and room for more.

`TURN_ENDS` is the one table of kinds. A kind that is not in it is a plugin's and is treated as a legal foreign value:
every place that branches on kinds has a default.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from msgspec import Struct

from refold_protocol.ids import ApprovalId, CallId, InputId
from refold_protocol.json_text import JsonText
from refold_protocol.session.messages import (
    Block,
    CallConfig,
    Chunk,
    EpochHeader,
    InputBlock,
    Message,
    Replay,
    ResultBlock,
    Source,
    SystemDelta,
    ToolsDelta,
    Usage,
)


class ClientInfo(Struct, frozen=True, gc=False, omit_defaults=True):
    """The editor or program at the other end, by its own account."""

    name: str
    version: str | None = None


class InstanceStart(Struct, frozen=True, gc=False, omit_defaults=True):
    """A loop instance begins; what stands before was inherited. `reason` is `new`, `resume` or `fork`."""

    instance: int
    reason: str
    client: ClientInfo | None = None


class PermissionSettings(Struct, frozen=True, gc=False, omit_defaults=True):
    """What may run without asking; `mode` is a word of the configuration."""

    mode: str | None = None


class LimitSettings(Struct, frozen=True, gc=False, omit_defaults=True):
    """Bounds of one turn; `steps` is the largest number of model calls."""

    steps: int | None = None


class CompactionSettings(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """When a session's history is summed up; an absent member is the configuration's. `auto`: without being asked to.
    `threshold_ratio` is the share of the window at which that begins; `retain_tokens` at the end stay as they are."""

    auto: bool | None = None
    threshold_ratio: float | None = None
    retain_tokens: int | None = None


class SessionSettings(Struct, frozen=True, gc=False, omit_defaults=True):
    """The settings in force from here on; an absent one is the configuration's. `model` is `provider/model`. `revoked` names
    tools that were allowed for the session and are asked about again."""

    model: str | None = None
    effort: str | None = None
    permissions: PermissionSettings | None = None
    limits: LimitSettings | None = None
    compaction: CompactionSettings | None = None
    revoked: tuple[str, ...] | None = None


class InputAccepted(Struct, frozen=True, gc=False, omit_defaults=True):
    """Something came in: `mode` is `prompt`, `steer` or `inject`. Flushed before its request is answered."""

    input: InputId
    mode: str
    content: tuple[InputBlock, ...]
    source: Source
    key: str | None = None


class InputSettled(Struct, frozen=True, gc=False, omit_defaults=True):
    """An input will never become a message: `how` is `withdrawn`, `blocked` or `aborted`."""

    input: InputId
    how: str
    reason: str | None = None


class Trigger(Struct, frozen=True, gc=False, omit_defaults=True):
    """Why a turn started: `kind` is `message` or `injection`."""

    kind: str
    source: Source
    input: InputId | None = None


class TurnStart(Struct, frozen=True, gc=False):
    """A turn opens. Turns number from 1 in a session."""

    turn: int
    trigger: Trigger


class AbortCause(Struct, frozen=True, gc=False, omit_defaults=True):
    """Who stopped a turn: `kind` is `user`, `parent`, `hook` or `disposed`."""

    kind: str
    reason: str | None = None


class TurnError(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """What made a turn fail. `kind` is one of `errors.KINDS`; `message` is a sentence with a hint for a person."""

    kind: str
    message: str
    step: int | None = None
    status: int | None = None
    retry_after_ms: int | None = None
    request_id: str | None = None


class TurnEndReason(Struct, frozen=True, gc=False, omit_defaults=True):
    """How a turn ended. An open union told apart by `kind`; see `endings.py` for the kinds and what each carries.

    A kind that is not listed there is a legal foreign value. Of its members `reason` and `payload` (JSON text) are read where
    they are strings, as a plugin of ours writes them; whatever else it has stays in the event's line.
    """

    kind: str
    cause: AbortCause | None = None
    error: TurnError | None = None
    reason: str | None = None
    payload: JsonText | None = None


class TurnEnd(Struct, frozen=True, gc=False):
    """A turn closes."""

    turn: int
    reason: TurnEndReason


class StepStart(Struct, frozen=True, gc=False):
    """A step opens: the reconstruction boundary of its request. Steps number from 1 in a turn."""

    turn: int
    step: int


class StepEnd(Struct, frozen=True, gc=False, omit_defaults=True):
    """A step closes; `outcome` is `ok` (absent), `overflow`, `error` or `aborted`."""

    turn: int
    step: int
    outcome: str = "ok"


class UserMessage(Struct, frozen=True, gc=False, omit_defaults=True):
    """A prompt that joined the history, or a compaction's summary that took its place."""

    content: tuple[InputBlock, ...]
    source: Source
    input: InputId | None = None


class ContextMessage(Struct, frozen=True, gc=False, omit_defaults=True):
    """Something the model should know; `envelope` is `context` (wrapped by the projection) or `raw` (verbatim)."""

    content: tuple[InputBlock, ...]
    source: Source
    envelope: str
    input: InputId | None = None
    meta: JsonText | None = None


class SteeringMessage(Struct, frozen=True, gc=False, omit_defaults=True):
    """Input that joined a running turn between two steps."""

    turn: int
    content: tuple[InputBlock, ...]
    source: Source
    input: InputId | None = None


class AssistantChunk(Struct, frozen=True, gc=False):
    """One decoded piece of a reply, as it came."""

    turn: int
    step: int
    attempt: int
    chunk: Chunk


class AssistantMessage(Struct, frozen=True, gc=False, omit_defaults=True):
    """A reply, whole or (with `interrupted`) as far as it came. `finish` is a reason of FinishChunk; `other` where the
    stream gave none. Its event's `sources` are the chunks of this attempt, `[]` when the provider sent none. `written`: the
    model wrote its calls as text, which those chunks hold."""

    turn: int
    step: int
    content: tuple[Block, ...]
    provider: str
    model: str
    finish: str
    usage: Usage | None = None
    interrupted: bool = False
    replay: Replay | None = None
    written: bool = False


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


class ModelWindow(Struct, frozen=True, gc=False, rename={"context_window": "contextWindow", "told_by": "from"}):
    """A model's server said how large its window is, in tokens. `told_by` is the answer in which it stood: `models`, `props`,
    `ps`, `loaded` or `info`."""

    provider: str
    model: str
    context_window: int
    told_by: str


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


class UnusedSummary(Struct, frozen=True, gc=False):
    """What the summary of request `attempt` of a compaction cost, which did not land."""

    attempt: int
    usage: Usage


class CompactEnd(Struct, frozen=True, gc=False, omit_defaults=True):
    """A compaction is over; with `error` it changed nothing. `unused` are the summaries that were paid for and thrown away."""

    error: TurnError | None = None
    unused: tuple[UnusedSummary, ...] = ()


class SessionTitle(Struct, frozen=True, gc=False):
    """The session's name; the last one wins."""

    title: str
    by: Source


class EndKind(Struct, frozen=True, gc=False):
    """A row of the table: which member carries its payload (None: none does), and who writes it."""

    payload: str | None
    written_by: tuple[str, ...]
    meaning: str


TURN_ENDS: Final[dict[str, EndKind]] = {
    "completed": EndKind(None, ("loop",), "the model had nothing more to do"),
    "max-tokens": EndKind(None, ("loop",), "a reply was cut by the output limit"),
    "aborted": EndKind("cause", ("loop",), "somebody stopped it"),
    "error": EndKind("error", ("loop",), "something failed that the loop could not go on from"),
    "blocked": EndKind("reason", ("loop",), "the prompt was vetoed; no step ran"),
    "interrupted": EndKind(None, ("closer",), "its process died; the next writer closed it"),
    "forked": EndKind(None, ("closer",), "a fork was cut inside it"),
    "max-steps": EndKind(None, ("loop",), "the limit of steps was reached"),
}

COMPLETED: Final = TurnEndReason("completed")
MAX_TOKENS: Final = TurnEndReason("max-tokens")
MAX_STEPS: Final = TurnEndReason("max-steps")
INTERRUPTED: Final = TurnEndReason("interrupted")
FORKED: Final = TurnEndReason("forked")


def aborted(cause: AbortCause) -> TurnEndReason:
    """Give the end of a turn that somebody stopped."""
    return TurnEndReason("aborted", cause=cause)


def failed(error: TurnError) -> TurnEndReason:
    """Give the end of a turn that failed."""
    return TurnEndReason("error", error=error)


def is_foreign_end(kind: str) -> bool:
    """Tell whether a plugin may end a turn with this kind: `vendor/name`, which none of ours is."""
    vendor, slash, name = kind.partition("/")
    return bool(vendor.strip() and slash and name.strip()) and kind not in TURN_ENDS


def blocked(reason: str) -> TurnEndReason:
    """Give the end of a turn whose prompt was vetoed."""
    return TurnEndReason("blocked", reason=reason)
