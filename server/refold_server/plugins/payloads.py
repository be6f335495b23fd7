"""Owns what handlers of seams are given and what they may give back: frozen structs of frozen things, all the way down.

A payload shows everything that its seam may look at; what a handler gives back is all that it can change. Assigning to
an attribute or an item of anything here raises in the handler. Shapes only: `chain.py` runs handlers, `seams.py` of the
loop says when.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeAlias

from msgspec import Struct

from refold_protocol.ids import CallId, SessionId
from refold_protocol.session.events import Event
from refold_protocol.session.header_types import CallConfig, ToolSchema
from refold_protocol.session.messages import Chunk, InputBlock, Message, Source, TextBlock, Usage
from refold_protocol.session.request import Request
from refold_server.tools.execute import ToolAnswer


class Place(Struct, frozen=True, gc=False):
    """Where in which session a seam is. `cwd` is the session's folder; `step` is 0 before the first step of a turn."""

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

    place: Place
    content: tuple[InputBlock, ...]
    source: Source


class Submit(Struct, frozen=True, gc=False):
    """Lets a prompt in: with other `content` (None: as it is), and with `context` behind it."""

    content: tuple[InputBlock, ...] | None = None
    context: tuple[Context, ...] = ()


class Block(Struct, frozen=True, gc=False):
    """Vetoes a prompt for a reason, which the client is told; the turn ends `blocked` without a step."""

    reason: str


class Assembling(Struct, frozen=True, gc=False):
    """system-prompt/assemble: a step is about to say what stands beside its history. Asked at every step."""

    place: Place


class Assembled(Struct, frozen=True, gc=False):
    """What a step offers beside the history: the system text and the tools, in order.

    Tools are frozen for an instance from its first request: other ones join at the next break, not here.
    """

    system: str
    tools: tuple[ToolSchema, ...]


class Composing(Struct, frozen=True, gc=False):
    """agent/session-prefix: the instance's prefix is composed, once, before its first `agent/pre-step`."""

    place: Place


class StepAhead(Struct, frozen=True, gc=False):
    """agent/pre-step: the last moment at which the history of this step's request can still grow. `system` and `prefix`
    are those that its request will have; `tools` are there now, and join it unless older ones are frozen."""

    place: Place
    system: str
    tools: tuple[ToolSchema, ...]
    prefix: tuple[Message, ...]


class Routing(Struct, frozen=True, gc=False):
    """agent/request: the call config may be replaced, nothing else. What `next()` gives is what is in force."""

    place: Place


class Outgoing(Struct, frozen=True, gc=False):
    """llm/stream: a request and the exact bytes of it, recorded and durable, about to leave."""

    place: Place
    request: Request
    body: bytes


class Call(Struct, frozen=True, gc=False):
    """tools/pre-execute, tools/execute: a call as the model made it. `arguments` is its text."""

    place: Place
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
    """Records an answer: another one (None: as it is), and `context` behind the step's last result."""

    answer: ToolAnswer | None = None
    context: tuple[Context, ...] = ()


class StepOver(Struct, frozen=True, gc=False):
    """agent/turn-stop: a step ended. `goes_on`: the model waits for results of tools, or steering waits for the model."""

    place: Place
    goes_on: bool


class Stop(Struct, frozen=True, gc=False):
    """Ends a turn that would go on, as `aborted` by a hook; one that would stop anyway just stops."""

    reason: str


class GoOn(Struct, frozen=True, gc=False):
    """Lets a turn go on that would stop. It says something to the model: a request must not end with the model's own reply."""

    context: tuple[Context, ...]


class Summarising(Struct, frozen=True, gc=False):
    """compaction/summarise: a region of the history is about to be summed up. `request` is what the model would be asked: the
    region as it was sent, and the instructions as its last message. A summary has at most `max_tokens` tokens. `prefix` is
    the one that stands before the history from now on: `request` has that of the last request."""

    place: Place
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
