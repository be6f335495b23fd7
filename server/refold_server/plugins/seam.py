"""Owns the one table of seams: their names, modes, what happens when a handler fails, what its handlers look like.

Modes: `waterfall` handlers get `next` and give a value back, what the rest of the chain gave or another one; `serial`
ones decide one after the other and see what those before decided; `observe` ones look on and change nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar

from refold_protocol.session.header_types import CallConfig
from refold_protocol.session.messages import Chunk, Message
from refold_server.plugins import payloads as give
from refold_server.tools.tool_runner import ToolAnswer

Handler = TypeVar("Handler")

Mode: TypeAlias = Literal["waterfall", "serial", "observe"]

OnFailure: TypeAlias = Literal["skip", "refuse", "end"]
"""What a handler's failure does: `skip` goes on as if the plugin were not there; `refuse` blocks the prompt, denies the
call or answers it with an error, because a guard that broke must not let things through; `end` ends the turn."""


class Seam(Generic[Handler]):
    """One seam. `limit_s` is the time that one handler may take, what it waits for `next` not counted; None: it is called
    without waiting. Immutable; compared by identity."""

    __slots__ = ("changes", "limit_s", "mode", "name", "on_failure")

    name: str
    mode: Mode
    on_failure: OnFailure
    limit_s: float | None
    changes: str

    def __init__(self, name: str, mode: Mode, on_failure: OnFailure, limit_s: float | None, changes: str) -> None:
        for field, value in (
            ("name", name),
            ("mode", mode),
            ("on_failure", on_failure),
            ("limit_s", limit_s),
            ("changes", changes),
        ):
            object.__setattr__(self, field, value)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a seam is immutable: {name}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a seam is immutable: {name}")

    def __repr__(self) -> str:
        return f"Seam({self.name})"


PromptHandler: TypeAlias = Callable[[give.Prompt], Awaitable[give.Submit | give.Block | None]]
AssembleHandler: TypeAlias = Callable[[give.Assembling, give.NextAssembled], Awaitable[give.Assembled]]
PrefixHandler: TypeAlias = Callable[[give.Composing, give.NextPrefix], Awaitable[Sequence[Message]]]
StepHandler: TypeAlias = Callable[[give.StepAhead], Awaitable[Sequence[give.Context] | None]]
ConfigHandler: TypeAlias = Callable[[give.Routing, give.NextConfig], Awaitable[CallConfig]]
StreamHandler: TypeAlias = Callable[[give.Outgoing, give.NextStream], AsyncIterator[Chunk]]
GuardHandler: TypeAlias = Callable[[give.Call], Awaitable[give.Deny | None]]
CallHandler: TypeAlias = Callable[[give.Call, give.NextAnswer], Awaitable[ToolAnswer]]
AnswerHandler: TypeAlias = Callable[[give.Answered], Awaitable[give.Accept | None]]
StopHandler: TypeAlias = Callable[[give.StepOver], Awaitable[give.Stop | give.GoOn | None]]
SummaryHandler: TypeAlias = Callable[[give.Summarising, give.NextSummary], Awaitable[give.Summary]]
EventHandler: TypeAlias = Callable[[give.Recorded], None]
FlushHandler: TypeAlias = Callable[[give.Flushed], None]

PROMPT_SUBMIT: Final[Seam[PromptHandler]] = Seam(
    "agent/prompt-submit", "serial", "refuse", 30, "the prompt's content, context behind it; may veto it"
)
ASSEMBLE: Final[Seam[AssembleHandler]] = Seam(
    "system-prompt/assemble", "waterfall", "skip", 10, "the system text and the tools of this step"
)
SESSION_PREFIX: Final[Seam[PrefixHandler]] = Seam(
    "agent/session-prefix", "waterfall", "skip", 30, "the messages before the whole history, once per instance"
)
PRE_STEP: Final[Seam[StepHandler]] = Seam(
    "agent/pre-step", "serial", "skip", 30, "context that joins the history before this step's request"
)
REQUEST: Final[Seam[ConfigHandler]] = Seam("agent/request", "waterfall", "skip", 10, "the call config")
STREAM: Final[Seam[StreamHandler]] = Seam(
    "llm/stream", "waterfall", "end", 30, "the chunks of the reply, wrapped or replaced; never what is sent"
)
PRE_EXECUTE: Final[Seam[GuardHandler]] = Seam("tools/pre-execute", "serial", "refuse", 30, "nothing; may deny the call")
EXECUTE: Final[Seam[CallHandler]] = Seam("tools/execute", "waterfall", "refuse", 120, "the answer of a call")
POST_EXECUTE: Final[Seam[AnswerHandler]] = Seam(
    "tools/post-execute", "serial", "skip", 30, "the answer that is recorded, context behind the last result"
)
TURN_STOP: Final[Seam[StopHandler]] = Seam(
    "agent/turn-stop", "serial", "skip", 30, "whether the turn goes on, with context that says why"
)
SUMMARISE: Final[Seam[SummaryHandler]] = Seam(
    "compaction/summarise", "waterfall", "skip", 120, "the summary that stands for the older part of the history"
)
OBSERVE: Final[Seam[EventHandler]] = Seam("log/observe", "observe", "skip", None, "nothing; sees each accepted event")
FLUSH: Final[Seam[FlushHandler]] = Seam("session/flush", "observe", "skip", None, "nothing; is told what became durable")

SEAMS: Final[tuple[Seam[Any], ...]] = (
    PROMPT_SUBMIT,
    ASSEMBLE,
    SESSION_PREFIX,
    PRE_STEP,
    SUMMARISE,
    REQUEST,
    STREAM,
    PRE_EXECUTE,
    EXECUTE,
    POST_EXECUTE,
    TURN_STOP,
    OBSERVE,
    FLUSH,
)
"""Every seam, in the order in which a turn meets them."""
