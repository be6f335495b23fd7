"""The table of hooks: their names, modes and limits, what handlers are given, and what they may give back.

Modes: `waterfall` handlers get `next` and give a value back, what the rest of the chain gave or another one; `serial`
ones decide one after the other and see what those before decided; `observe` ones look on and change nothing.

Payloads are frozen structs of frozen things, all the way down: assigning to an attribute or an item of anything here raises in
the handler. A payload shows everything that its hook may look at; what a handler gives back is all that it can change.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar

from msgspec import Struct

from refold_protocol.ids import CallId, SessionId
from refold_protocol.json_text import JsonText
from refold_protocol.session.events import Event
from refold_protocol.session.messages import CallConfig, Chunk, InputBlock, Message, Source, TextBlock, ToolSchema, Usage
from refold_protocol.session.request import Request
from refold_server.tools.tool_runner import ToolAnswer


class HookContext(Struct, frozen=True, gc=False):
    """Where in which session a hook is. `cwd` is the session's folder; `step` is 0 before the first step of a turn."""

    session: SessionId
    cwd: str
    turn: int
    step: int = 0


class Context(Struct, frozen=True, gc=False):
    """Something the model should know besides. It becomes a `context/message` of the plugin, recorded and paid once.

    `raw` leaves out the envelope `<context source="plugin:NAME">` around it.
    """

    content: tuple[InputBlock, ...]
    raw: bool = False


def context(text: str, *, raw: bool = False) -> Context:
    """Give context that is text alone."""
    return Context((TextBlock(text),), raw)


class Prompt(Struct, frozen=True, gc=False):
    """agent/prompt-submit: a prompt that is about to join the history, as the handlers before left it."""

    place: HookContext
    content: tuple[InputBlock, ...]
    source: Source


class Submit(Struct, frozen=True, gc=False):
    """Lets a prompt in: with other `content` (None: as it is), and with `context` after it."""

    content: tuple[InputBlock, ...] | None = None
    context: tuple[Context, ...] = ()


class Block(Struct, frozen=True, gc=False):
    """Vetoes a prompt for a reason, which the client is told; the turn ends `blocked` without a step."""

    reason: str


class Assembling(Struct, frozen=True, gc=False):
    """system-prompt/assemble: a step is about to say what stands beside its history. Asked at every step."""

    place: HookContext


class Assembled(Struct, frozen=True, gc=False):
    """What a step offers beside the history: the system text and the tools, in order.

    Tools are frozen for an instance from its first request: other ones join at the next break, not here.
    """

    system: str
    tools: tuple[ToolSchema, ...]


class PrefixRequest(Struct, frozen=True, gc=False):
    """agent/session-prefix: the instance's prefix is composed, once, before its first `agent/pre-step`."""

    place: HookContext


class BeforeStep(Struct, frozen=True, gc=False):
    """agent/pre-step: the last moment at which the history of this step's request can still grow. `system` and `prefix`
    are those that its request will have; `tools` are there now, and join it unless older ones are frozen."""

    place: HookContext
    system: str
    tools: tuple[ToolSchema, ...]
    prefix: tuple[Message, ...]


class ConfigRequest(Struct, frozen=True, gc=False):
    """agent/request: the call config may be replaced, nothing else. What `next()` gives is what is in force."""

    place: HookContext


class Outgoing(Struct, frozen=True, gc=False):
    """llm/stream: a request and the exact bytes of it, recorded and durable, about to leave."""

    place: HookContext
    request: Request
    body: bytes


class Call(Struct, frozen=True, gc=False):
    """tools/pre-execute, tools/execute: a call as the model made it. `arguments` is its text."""

    place: HookContext
    id: CallId
    name: str
    arguments: str
    read_only: bool


class Deny(Struct, frozen=True, gc=False):
    """Keeps a call from running; the model is told why by an error result."""

    reason: str


class Answered(Struct, frozen=True, gc=False):
    """tools/post-execute: a call and its answer, as the handlers before left it."""

    call: Call
    answer: ToolAnswer


class Accept(Struct, frozen=True, gc=False):
    """Records an answer: another one (None: as it is), and `context` after the step's last result."""

    answer: ToolAnswer | None = None
    context: tuple[Context, ...] = ()


class AfterStep(Struct, frozen=True, gc=False):
    """agent/turn-stop: a step ended. `goes_on`: the model waits for results of tools, or steering waits for the model."""

    place: HookContext
    goes_on: bool


class Stop(Struct, frozen=True, gc=False):
    """Ends a turn that would go on; one that would stop anyway just stops. It ends as `aborted` by a hook, or with a `kind` of
    the plugin's own, `vendor/name`, and with it a `payload` for programs, which is JSON text."""

    reason: str
    kind: str | None = None
    payload: JsonText | None = None


class GoOn(Struct, frozen=True, gc=False):
    """Lets a turn go on that would stop. It says something to the model: a request must not end with the model's own reply."""

    context: tuple[Context, ...]


class Summarising(Struct, frozen=True, gc=False):
    """compaction/summarise: a region of the history is about to be summed up. `request` is what the model would be asked: the
    region as it was sent, and the instructions as its last message. A summary has at most `max_tokens` tokens. `prefix` is
    the one that stands before the history from now on: `request` has that of the last request."""

    place: HookContext
    request: Request
    instructions: str
    max_tokens: int
    prefix: tuple[Message, ...] = ()


class Summary(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """What stands for a region. `model` is who wrote it, as `provider/model` or any other name."""

    text: str
    model: str
    usage: Usage | None = None


class Recorded(Struct, frozen=True, gc=False):
    """log/observe: an event that the log of the session has accepted."""

    session: SessionId
    event: Event


class Flushed(Struct, frozen=True, gc=False):
    """session/flush: everything up to the event `durable` of the session survives a power cut from now on."""

    session: SessionId
    durable: int


NextAssembled: TypeAlias = Callable[[], Awaitable[Assembled]]
NextPrefix: TypeAlias = Callable[[], Awaitable[tuple[Message, ...]]]
NextConfig: TypeAlias = Callable[[], Awaitable[CallConfig]]
NextAnswer: TypeAlias = Callable[[], Awaitable[ToolAnswer]]
NextStream: TypeAlias = Callable[[Outgoing], AsyncIterator[Chunk]]
NextSummary: TypeAlias = Callable[[], Awaitable[Summary]]
Handler = TypeVar("Handler")
Mode: TypeAlias = Literal["waterfall", "serial", "observe"]
OnFailure: TypeAlias = Literal["skip", "refuse", "end"]
"""What a handler's failure does: `skip` goes on as if the plugin were not there; `refuse` blocks the prompt, denies the
call or answers it with an error, because a guard that broke must not let things through; `end` ends the turn."""


class Hook(Struct, Generic[Handler], frozen=True, eq=False):
    """One hook, compared by identity. `limit_s` is the time that one handler may take, what it waits for `next` not counted;
    None: it is called without waiting. `changes` says what a handler may change."""

    name: str
    mode: Mode
    on_failure: OnFailure
    limit_s: float | None
    changes: str


PromptHandler: TypeAlias = Callable[[Prompt], Awaitable[Submit | Block | None]]
AssembleHandler: TypeAlias = Callable[[Assembling, NextAssembled], Awaitable[Assembled]]
PrefixHandler: TypeAlias = Callable[[PrefixRequest, NextPrefix], Awaitable[Sequence[Message]]]
StepHandler: TypeAlias = Callable[[BeforeStep], Awaitable[Sequence[Context] | None]]
ConfigHandler: TypeAlias = Callable[[ConfigRequest, NextConfig], Awaitable[CallConfig]]
StreamHandler: TypeAlias = Callable[[Outgoing, NextStream], AsyncIterator[Chunk]]
GuardHandler: TypeAlias = Callable[[Call], Awaitable[Deny | None]]
CallHandler: TypeAlias = Callable[[Call, NextAnswer], Awaitable[ToolAnswer]]
AnswerHandler: TypeAlias = Callable[[Answered], Awaitable[Accept | None]]
StopHandler: TypeAlias = Callable[[AfterStep], Awaitable[Stop | GoOn | None]]
SummaryHandler: TypeAlias = Callable[[Summarising, NextSummary], Awaitable[Summary]]
EventHandler: TypeAlias = Callable[[Recorded], None]
FlushHandler: TypeAlias = Callable[[Flushed], None]
PROMPT_SUBMIT: Final[Hook[PromptHandler]] = Hook(
    "agent/prompt-submit", "serial", "refuse", 30, "the prompt's content, context after it; may veto it"
)
ASSEMBLE: Final[Hook[AssembleHandler]] = Hook(
    "system-prompt/assemble", "waterfall", "skip", 10, "the system text and the tools of this step"
)
SESSION_PREFIX: Final[Hook[PrefixHandler]] = Hook(
    "agent/session-prefix", "waterfall", "skip", 30, "the messages before the whole history, once per instance"
)
PRE_STEP: Final[Hook[StepHandler]] = Hook(
    "agent/pre-step", "serial", "skip", 30, "context that joins the history before this step's request"
)
REQUEST: Final[Hook[ConfigHandler]] = Hook("agent/request", "waterfall", "skip", 10, "the call config")
STREAM: Final[Hook[StreamHandler]] = Hook(
    "llm/stream", "waterfall", "end", 30, "the chunks of the reply, wrapped or replaced; never what is sent"
)
PRE_EXECUTE: Final[Hook[GuardHandler]] = Hook("tools/pre-execute", "serial", "refuse", 30, "nothing; may deny the call")
EXECUTE: Final[Hook[CallHandler]] = Hook("tools/execute", "waterfall", "refuse", 120, "the answer of a call")
POST_EXECUTE: Final[Hook[AnswerHandler]] = Hook(
    "tools/post-execute", "serial", "skip", 30, "the answer that is recorded, context after the last result"
)
TURN_STOP: Final[Hook[StopHandler]] = Hook(
    "agent/turn-stop", "serial", "skip", 30, "whether the turn goes on, with context that says why"
)
SUMMARISE: Final[Hook[SummaryHandler]] = Hook(
    "compaction/summarise", "waterfall", "skip", 120, "the summary that stands for the older part of the history"
)
OBSERVE: Final[Hook[EventHandler]] = Hook("log/observe", "observe", "skip", None, "nothing; sees each accepted event")
FLUSH: Final[Hook[FlushHandler]] = Hook("session/flush", "observe", "skip", None, "nothing; is told what became durable")
HOOKS: Final[tuple[Hook[Any], ...]] = (
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
"""Every hook, in the order in which a turn meets them."""
