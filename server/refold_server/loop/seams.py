"""Owns the seams of the loop: the places, in log.md's order, at which others take part, as one small module of calls.

Each method is one seam; what it gets is immutable, what it gives back is all that it may change. This release has no
plugins: every seam does what the loop would do without it. Never appends.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol

from msgspec import Struct

from refold_protocol.ids import CallId
from refold_protocol.session.events import ContextMessage
from refold_protocol.session.header_types import CallConfig, ToolSchema
from refold_protocol.session.messages import Chunk, InputBlock, Message, Source, ToolCallBlock
from refold_protocol.session.request import Request
from refold_server.providers.provider import Provider
from refold_server.tools.execute import ToolAnswer


class Submitted(Struct, frozen=True, gc=False):
    """A prompt's verdict: it joins as `content` with `context` behind it, or it is `blocked` for a reason."""

    content: tuple[InputBlock, ...]
    context: tuple[ContextMessage, ...] = ()
    blocked: str | None = None


class Assembled(Struct, frozen=True, gc=False):
    """What a step offers beside the history: the system text and the tools, in order."""

    system: str
    tools: tuple[ToolSchema, ...]


class Executed(Struct, frozen=True, gc=False):
    """A call's answer as the model will see it, and what should be said to the model besides."""

    answer: ToolAnswer
    context: tuple[ContextMessage, ...] = ()


class RunTool(Protocol):
    """Runs one call: `tools/execute` without its wrappers."""

    async def __call__(self, call_id: CallId, name: str, arguments: str) -> ToolAnswer:
        """Give the answer; never raises but for cancellation."""
        ...


class Seams:
    """The seams without plugins."""

    async def prompt_submit(self, content: tuple[InputBlock, ...], source: Source) -> Submitted:
        """agent/prompt-submit: let a prompt in, change it, add context to it, or veto it."""
        del source
        return Submitted(content)

    async def assemble(self, system: str, tools: tuple[ToolSchema, ...]) -> Assembled:
        """system-prompt/assemble: the system text and tools of this step."""
        return Assembled(system, tools)

    async def session_prefix(self) -> tuple[Message, ...]:
        """agent/session-prefix: the instance's opener, composed once, before its first pre-step."""
        return ()

    async def pre_step(self, prefix: tuple[Message, ...]) -> None:
        """agent/pre-step: the last moment at which the history of this step's request can still grow or shrink."""
        del prefix

    async def request(self, config: CallConfig) -> CallConfig:
        """agent/request: may replace the call config, and nothing else."""
        return config

    def stream(self, provider: Provider, request: Request, body: bytes) -> AsyncGenerator[Chunk, None]:
        """llm/stream: the provider's reply to exactly these bytes."""
        return provider.stream(request, body)

    async def pre_execute(self, call: ToolCallBlock) -> str | None:
        """tools/pre-execute: None lets the call run; a sentence denies it."""
        del call
        return None

    async def execute(self, call: ToolCallBlock, run: RunTool) -> ToolAnswer:
        """tools/execute: around the body of a tool."""
        return await run(CallId(call.id), call.name, call.arguments)

    async def post_execute(self, call: ToolCallBlock, answer: ToolAnswer) -> Executed:
        """tools/post-execute: the answer as recorded, and context to add behind the last result."""
        del call
        return Executed(answer)

    async def turn_stop(self, go_on: bool) -> bool:
        """agent/turn-stop: asked at each step's end; True goes on with another step."""
        return go_on
