"""A host for loop tests: scripted providers and tools, everything else real."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import cast

import anyio

from refold_protocol.dialects.dialect_table import dialect_named
from refold_protocol.errors import RefoldError
from refold_protocol.ids import CallId
from refold_protocol.json_text import JsonText
from refold_protocol.session.events import ApprovalSubject, SessionSettings, ToolErrorInfo
from refold_protocol.session.messages import (
    BlockEnd,
    BlockStart,
    CallConfig,
    Chunk,
    FinishChunk,
    TextDelta,
    ToolCallDelta,
    ToolSchema,
    Usage,
    UsageChunk,
    text_content,
)
from refold_protocol.session.model_windows import LearnedWindow
from refold_protocol.session.request import Request
from refold_protocol.session.token_estimate import MeterRow, profile_for
from refold_server.compaction.compaction_decision import policy_of
from refold_server.config import CompactionConfig, Mode, RetryConfig
from refold_server.providers.told_window import ToldWindow
from refold_server.requests.live_check import CheckMode
from refold_server.requests.session_meters import ModelTokenMeter
from refold_server.tools.tool import PastResults
from refold_server.tools.tool_runner import Proposed, ToolAnswer


def says(*parts: str, finish: str = "stop") -> list[Chunk]:
    """Chunks of a reply that is text alone."""
    texts: list[Chunk] = [TextDelta(0, part) for part in parts]
    return [BlockStart(0, "text"), *texts, BlockEnd(0), UsageChunk(Usage(7, 3)), FinishChunk(finish)]


def calls(*wanted: tuple[str, str, str], finish: str = "tool-calls") -> list[Chunk]:
    """Chunks of a reply that is calls alone: (id, name, arguments) each."""
    chunks: list[Chunk] = []
    for index, (call_id, name, arguments) in enumerate(wanted):
        chunks += [BlockStart(index, "tool-call", call_id, name), ToolCallDelta(index, arguments), BlockEnd(index)]
    return [*chunks, FinishChunk(finish)]


class Pause:
    """Stands in a script where the provider waits; `reached` is set when it got there."""

    def __init__(self) -> None:
        self.reached = anyio.Event()
        self.go_on = anyio.Event()


Script = Sequence[Chunk | Exception | Pause]


class ScriptedProvider:
    """Answers each request with the next script, and remembers the requests and the bytes that it was given."""

    def __init__(self, *scripts: Script) -> None:
        self.scripts = list(scripts)
        self.requests: list[Request] = []
        self.bodies: list[bytes] = []
        self.closed = 0

    async def stream(self, request: Request, body: bytes) -> AsyncGenerator[Chunk, None]:
        self.requests.append(request)
        self.bodies.append(body)
        script = self.scripts.pop(0)
        try:
            for item in script:
                if isinstance(item, Exception):
                    raise item
                if isinstance(item, Pause):
                    item.reached.set()
                    await item.go_on.wait()
                else:
                    yield item
        finally:
            self.closed += 1


ToolBody = Callable[[str], Awaitable[str]]


class ScriptedHost:
    """A host with one provider and tools that are functions of the arguments' text."""

    def __init__(self, provider: ScriptedProvider, tools: dict[str, ToolBody] | None = None, steps: int = 10) -> None:
        self.scripted = provider
        self.bodies = {} if tools is None else tools
        self.steps = steps
        self.model = "small"
        self.alone: set[str] = set()
        self.asking: set[str] = set()
        self.mode: Mode = "ask"
        self.limit_s = 60.0
        self.checks: CheckMode = "always"
        self.trouble: RefoldError | None = None
        self.window: int | None = None
        self.windows: dict[str, int] = {}
        self.policy = CompactionConfig()
        self.retry = RetryConfig(attempts=1)
        self.policies: dict[str, CompactionConfig] = {}
        self.meters: dict[str, ModelTokenMeter] = {}
        self.told: dict[str, ToldWindow] = {}
        self.ran: list[tuple[str, str]] = []

    def call_config(self, settings: SessionSettings) -> CallConfig:
        if self.trouble is not None:
            raise self.trouble
        options = dialect_named("chat-completions").resolve_options({})
        return CallConfig("scripted", settings.model or self.model, "chat-completions", options)

    def provider(self, name: str) -> ScriptedProvider:
        assert name == "scripted"
        return self.scripted

    def step_limit(self, settings: SessionSettings) -> int:
        limits = settings.limits
        return self.steps if limits is None or limits.steps is None else limits.steps

    async def tools(self) -> tuple[ToolSchema, ...]:
        return tuple(ToolSchema(name, f"does {name}", JsonText('{"type":"object"}')) for name in self.bodies)

    def attach(self, results: PastResults) -> None:
        self.results = results

    def meter(self, model: str, learned: LearnedWindow | None = None) -> ModelTokenMeter:
        """One token a character; no meter while there is no window."""
        if model not in self.meters:
            profile = profile_for(model, MeterRow(self.windows.get(model, self.window), 1.0))
            self.meters[model] = ModelTokenMeter(profile)
        return self.meters[model]

    async def told_window(self, model: str) -> ToldWindow | None:
        return self.told.get(model)

    def compaction(self, model: str, settings: SessionSettings) -> CompactionConfig:
        return policy_of(self.policies.get(model, self.policy), settings)

    def retries(self) -> RetryConfig:
        return self.retry

    def live_checks(self) -> CheckMode:
        return self.checks

    def permission_mode(self, settings: SessionSettings) -> Mode:
        given = None if settings.permissions is None else settings.permissions.mode
        return self.mode if given is None else cast("Mode", given)

    def approval_limit_s(self) -> float:
        return self.limit_s

    async def propose(self, call_id: CallId, name: str, arguments: str) -> Proposed | ToolAnswer | None:
        if name not in self.asking:
            return None
        return Proposed(ApprovalSubject("text", f"{name} {arguments}"), lambda: self.run_tool(call_id, name, arguments))

    def is_read_only(self, tool: str) -> bool:
        return tool not in self.alone

    async def run_tool(self, call_id: CallId, name: str, arguments: str) -> ToolAnswer:
        self.ran.append((call_id, name))
        if name not in self.bodies:
            return ToolAnswer(text_content(f"there is no tool {name!r}"), True, ToolErrorInfo("UnknownTool", "UNKNOWN_TOOL"))
        return ToolAnswer(text_content(await self.bodies[name](arguments)), False)
