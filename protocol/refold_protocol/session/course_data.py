"""Owns the data of events about the course of a session: instances, settings, inputs, turns, steps and messages.

Shapes only; the table that names their event types is in `events.py`. Every struct tolerates fields it does not know.
"""

from __future__ import annotations

from msgspec import Struct

from refold_protocol.ids import InputId
from refold_protocol.json_text import JsonText
from refold_protocol.session.messages import Block, Chunk, InputBlock, Replay, Source, Usage


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
    """The settings in force from here on; an absent one is the configuration's. `model` is `provider/model`."""

    model: str | None = None
    effort: str | None = None
    permissions: PermissionSettings | None = None
    limits: LimitSettings | None = None
    compaction: CompactionSettings | None = None


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
    stream gave none. Its event's `sources` are the chunks of this attempt, `[]` when the provider sent none."""

    turn: int
    step: int
    content: tuple[Block, ...]
    provider: str
    model: str
    finish: str
    usage: Usage | None = None
    interrupted: bool = False
    replay: Replay | None = None
