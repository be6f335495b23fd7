"""Owns the composition of a session prefix: what the contributors say together, and what each of them added.

A contributor gets what those behind it say by `next()` and gives a list back, as a rule its own message before theirs. What
it added is what its list has and theirs had not; so a contributor that reorders or drops the messages of others is found
out, too. Must not know the log, nor which contributors there are.

Owns the seams of one session's loop: the places, in log.md's order, at which plugins take part.

Each method is one seam; what handlers get is immutable, what they give back is all that they may change. Without plugins
every seam does what the loop would do alone. Failures of plugins are reported to whoever `report` is. Never appends.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from difflib import SequenceMatcher
from typing import Any, Final, TypeAlias

from msgspec import Struct

from refold_protocol.errors import PluginError
from refold_protocol.ids import SessionId
from refold_protocol.session.events import ContextMessage, Event, ToolErrorInfo
from refold_protocol.session.messages import CallConfig, Chunk, InputBlock, Message, Source, ToolSchema, text_content
from refold_protocol.session.projection import enclosed_content
from refold_server.plugins import hook_table as at
from refold_server.plugins.hook_runner import PluginFailure, Report, Send, ask, handler_name, look, streaming, waterfall
from refold_server.plugins.hook_table import (
    Accept,
    AfterStep,
    Answered,
    Assembled,
    Assembling,
    BeforeStep,
    Block,
    Call,
    ConfigRequest,
    Context,
    Deny,
    Flushed,
    GoOn,
    Hook,
    HookContext,
    Outgoing,
    PrefixHandler,
    PrefixRequest,
    Prompt,
    Recorded,
    Stop,
    Submit,
    Summarising,
    Summary,
)
from refold_server.plugins.hook_values import (
    frozen_answer,
    frozen_assembled,
    frozen_config,
    frozen_contexts,
    frozen_decision,
    frozen_messages,
    frozen_summary,
)
from refold_server.plugins.plugin_registry import NO_PLUGINS, Plugins, Registered
from refold_server.tools.tool_runner import ToolAnswer


class Contribution(Struct, frozen=True):
    """What one contributor added: those of its messages that are in the prefix, in order. `removed` counts messages of
    contributors behind it that it left out."""

    plugin: str
    contributor: str
    messages: tuple[Message, ...] = ()
    removed: int = 0


class Composition(Struct, frozen=True):
    """A prefix, and the contributions to it in the order of the wire; those that say nothing stand last."""

    messages: tuple[Message, ...]
    contributions: tuple[Contribution, ...] = ()


Handlers = Sequence[Registered[PrefixHandler]]


async def compose(handlers: Handlers, composing: PrefixRequest, report: Report) -> Composition:
    """Run the waterfall over an empty seed. Failures are reported; the prefix is what the others say."""
    given: list[tuple[Message, ...]] = [()] * (len(handlers) + 1)

    async def run(place: int) -> tuple[Message, ...]:
        if place < len(handlers):
            one = handlers[place : place + 1]
            given[place] = await waterfall(one, composing, frozen_messages, lambda: run(place + 1), report)
        return given[place]

    return attributed(handlers, given, await run(0))


def attributed(handlers: Handlers, given: Sequence[tuple[Message, ...]], messages: tuple[Message, ...]) -> Composition:
    """Say what each handler added, where `given[n]` is what came of the n-th and those behind it."""
    owners: list[int] = []
    removed = [0] * len(handlers)
    for place in range(len(handlers) - 1, -1, -1):
        before, now = given[place + 1], given[place]
        passed = _passed_on(before, now)
        older, newer = before[: len(before) - passed], now[: len(now) - passed]
        kept = [place] * len(newer)
        for match in SequenceMatcher(None, older, newer, autojunk=False).get_matching_blocks():
            kept[match.b : match.b + match.size] = owners[match.a : match.a + match.size]
        kept += owners[len(older) :]
        removed[place] = len(before) - sum(owner != place for owner in kept)
        owners = kept
    rows = [
        Contribution(
            one.plugin,
            handler_name(one.handler),
            tuple(message for message, owner in zip(messages, owners, strict=True) if owner == place),
            removed[place],
        )
        for place, one in enumerate(handlers)
    ]
    first = [owners.index(place) if place in owners else len(owners) + place for place in range(len(rows))]
    return Composition(messages, tuple(row for _, row in sorted(zip(first, rows, strict=True), key=lambda pair: pair[0])))


def _passed_on(before: tuple[Message, ...], now: tuple[Message, ...]) -> int:
    """Count the messages with which both end: a contributor that keeps to the rule puts its own before them."""
    pairs = enumerate(zip(reversed(before), reversed(now), strict=False))
    return next((count for count, (one, other) in pairs if one != other), min(len(before), len(now)))


class Submitted(Struct, frozen=True, gc=False):
    """A prompt's verdict: it joins as `content` with `context` behind it, or it is `blocked` for a reason."""

    content: tuple[InputBlock, ...]
    context: tuple[ContextMessage, ...] = ()
    blocked: str | None = None


class Executed(Struct, frozen=True, gc=False):
    """A call's answer as the model will see it, and what should be said to the model besides."""

    answer: ToolAnswer
    context: tuple[ContextMessage, ...] = ()


class StepVerdict(Struct, frozen=True, gc=False):
    """Whether a turn goes on after a step: with `context` before the next one, or `stopped` by a hook."""

    goes_on: bool
    context: tuple[ContextMessage, ...] = ()
    stopped: Stop | None = None


RunCall: TypeAlias = Callable[[], Awaitable[ToolAnswer]]
"""Runs the body of a call; raises nothing but cancellation."""

_log = logging.getLogger(__name__)

NOWHERE: Final = SessionId("")


class SessionHooks:
    """The seams of one session in the folder `cwd`."""

    def __init__(self, plugins: Plugins = NO_PLUGINS, session: SessionId = NOWHERE, cwd: str = "/") -> None:
        self.report: Report = _told
        """Told of each failure of a plugin; set by the instance, which records it."""
        self.observing = False
        """Whether a handler is looking on right now: nothing may be recorded from inside it."""
        self._blind: dict[tuple[str, str], PluginFailure | None] = {}
        self._plugins = plugins
        self._session = session
        self._cwd = cwd

    def place(self, turn: int, step: int = 0) -> HookContext:
        """Give where a seam is."""
        return HookContext(self._session, self._cwd, turn, step)

    async def prompt_submit(self, place: HookContext, content: tuple[InputBlock, ...], source: Source) -> Submitted:
        """agent/prompt-submit: let a prompt in, change it, add context to it, or veto it."""
        added: list[ContextMessage] = []
        for one in self._plugins.at(at.PROMPT_SUBMIT):
            decision = await ask(
                one, Prompt(place, content, source), lambda value: frozen_decision(value, Submit, Block), self.report
            )
            match decision:
                case PluginFailure():
                    return Submitted(content, (), decision.sentence)
                case Block(reason=reason):
                    return Submitted(content, (), reason)
                case Submit(content=other, context=context):
                    content = content if other is None else other
                    added.extend(_messages(context, one.plugin))
                case _:
                    pass
        return Submitted(content, tuple(added))

    async def assemble(self, place: HookContext, system: str, tools: tuple[ToolSchema, ...]) -> Assembled:
        """system-prompt/assemble: the system text and tools of this step."""

        async def own() -> Assembled:
            return Assembled(system, tools)

        return await waterfall(self._plugins.at(at.ASSEMBLE), Assembling(place), frozen_assembled, own, self.report)

    async def session_prefix(self, place: HookContext) -> Composition:
        """agent/session-prefix: the instance's prefix, composed once, before its first pre-step."""
        return await compose(self._plugins.at(at.SESSION_PREFIX), PrefixRequest(place), self.report)

    async def pre_step(self, place: HookContext, offered: Assembled, prefix: tuple[Message, ...]) -> tuple[ContextMessage, ...]:
        """agent/pre-step: the last moment at which the history of this step's request can still grow or shrink."""
        added: list[ContextMessage] = []
        ahead = BeforeStep(place, offered.system, offered.tools, prefix)
        for one in self._plugins.at(at.PRE_STEP):
            context = await ask(one, ahead, frozen_contexts, self.report)
            if not isinstance(context, PluginFailure):
                added.extend(_messages(context, one.plugin))
        return tuple(added)

    async def summarise(self, asked: Summarising, own: Callable[[], Awaitable[Summary]]) -> Summary:
        """compaction/summarise: what stands for a region. `own` asks the model."""
        return await waterfall(self._plugins.at(at.SUMMARISE), asked, frozen_summary, own, self.report)

    async def request(self, place: HookContext, config: CallConfig, check: Callable[[CallConfig], None]) -> CallConfig:
        """agent/request: may replace the call config, and nothing else. `check` raises for one that no request can be made
        with: it must not be recorded, because the next step would begin with it."""

        async def own() -> CallConfig:
            return config

        def usable(value: object) -> CallConfig:
            other = frozen_config(value)
            check(other)
            return other

        return await waterfall(self._plugins.at(at.REQUEST), ConfigRequest(place), usable, own, self.report)

    def stream(self, outgoing: Outgoing, send: Send) -> AsyncGenerator[Chunk, None]:
        """llm/stream: the provider's reply to exactly these bytes. `send` checks what reaches it and sends it."""
        return streaming(self._plugins.at(at.STREAM), outgoing, send, self.report)

    async def pre_execute(self, call: Call) -> str | None:
        """tools/pre-execute: None lets the call run; a sentence denies it. No later handler undoes a denial."""
        for one in self._plugins.at(at.PRE_EXECUTE):
            decision = await ask(one, call, lambda value: frozen_decision(value, Deny), self.report)
            if isinstance(decision, PluginFailure):
                return f"{decision.sentence} The call was not run."
            if decision is not None:
                return decision.reason
        return None

    async def execute(self, call: Call, run: RunCall) -> ToolAnswer:
        """tools/execute: around the body of a tool. A wrapper that fails is the call's error result.

        A call that only reads may be tried again. Any other one runs once, because it was allowed once.
        """
        wrappers = self._plugins.at(at.EXECUTE)
        try:
            return await waterfall(wrappers, call, frozen_answer, run, self.report, once=not call.read_only)
        except PluginError as error:
            return ToolAnswer(text_content(error.message), True, ToolErrorInfo("PluginError", "TOOL_FAILED"))

    async def post_execute(self, call: Call, answer: ToolAnswer) -> Executed:
        """tools/post-execute: the answer as recorded, and context to add behind the last result."""
        added: list[ContextMessage] = []
        for one in self._plugins.at(at.POST_EXECUTE):
            decision = await ask(one, Answered(call, answer), lambda value: frozen_decision(value, Accept), self.report)
            if isinstance(decision, Accept):
                answer = answer if decision.answer is None else decision.answer
                added.extend(_messages(decision.context, one.plugin))
        return Executed(answer, tuple(added))

    async def turn_stop(self, place: HookContext, goes_on: bool) -> StepVerdict:
        """agent/turn-stop: asked at each step's end. The first handler that says stop is obeyed."""
        added: list[ContextMessage] = []
        for one in self._plugins.at(at.TURN_STOP):
            decision = await ask(one, AfterStep(place, goes_on), lambda value: frozen_decision(value, Stop, GoOn), self.report)
            match decision:
                case Stop() as stop:
                    return StepVerdict(False, (), stop if goes_on else None)
                case GoOn(context=context):
                    goes_on = True
                    added.extend(_messages(context, one.plugin))
                case _:
                    pass
        return StepVerdict(goes_on, tuple(added))

    @property
    def observes(self) -> bool:
        """Whether anybody wants to see events or flushes."""
        return bool(self._plugins.at(at.OBSERVE) or self._plugins.at(at.FLUSH))

    def observe(self, event: Event) -> None:
        """log/observe: called with each event once it is accepted. An append from inside is refused by the log."""
        self._watch(at.OBSERVE, Recorded(self._session, event))

    def flushed(self, durable: int) -> None:
        """session/flush: called when events became durable."""
        self._watch(at.FLUSH, Flushed(self._session, durable))

    def _watch(self, seam: Hook[Any], seen: object) -> None:
        self.observing = True
        try:
            for one in self._plugins.at(seam):
                failure = look(one, seen)
                if failure is not None and (one.plugin, seam.name) not in self._blind:
                    self._blind[one.plugin, seam.name] = failure
                    _log.warning("%s", failure.sentence)
        finally:
            self.observing = False

    def tell_failed_observers(self) -> None:
        """Report the first failure of each plugin that looks on, once: nothing can be recorded while it looks."""
        for key, failure in tuple(self._blind.items()):
            if failure is not None:
                self._blind[key] = None
                self.report(failure)


def _told(failure: PluginFailure) -> None:
    _log.warning("%s", failure.sentence)


def _messages(given: tuple[Context, ...], plugin: str) -> list[ContextMessage]:
    source = Source("plugin", plugin)
    return [
        ContextMessage(one.content, source, "raw")
        if one.raw
        else ContextMessage(enclosed_content("context", one.content), source, "context")
        for one in given
    ]
