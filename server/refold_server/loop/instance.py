"""Owns one loop instance: what lives as long as a session stays open for writing, outside its log.

By design that is two things only, the composed prefix and whether this instance has written its first header. Encoders
and digests are caches of what the log says. The instance's frozen tools come from the log's last header, continued.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from refold_protocol.dialects.dialect import BodyEncoder
from refold_protocol.dialects.dialect_table import dialect_named
from refold_protocol.errors import RefoldError
from refold_protocol.ids import CallId
from refold_protocol.session.append_only_list import AppendOnlyList
from refold_protocol.session.events import ClientInfo, Draft, Event, InstanceStart, PluginFailed, SessionSettings
from refold_protocol.session.header import canonical_header
from refold_protocol.session.messages import CallConfig, EpochHeader, Message, ToolSchema
from refold_protocol.session.request import Request, RequestDigest
from refold_server.compaction.result_cuts import readable
from refold_server.config import CompactionConfig, Mode, RetryConfig
from refold_server.loop.approvals import Approvals
from refold_server.plugins.hook_runner import PluginFailure
from refold_server.plugins.session_hooks import Composition, SessionHooks
from refold_server.providers.provider_registry import Provider
from refold_server.requests.live_check import CheckMode, LiveCheck
from refold_server.requests.session_log import LoggedResults, SessionLog
from refold_server.requests.session_meters import ModelTokenMeter
from refold_server.tools.tool import PastResults
from refold_server.tools.tool_runner import Proposed, ToolAnswer


class Host(Protocol):
    """What an instance needs from its surroundings."""

    def call_config(self, settings: SessionSettings) -> CallConfig:
        """Resolve the call config from settings and configuration. Raises ProviderError `model.unconfigured`."""
        ...

    def provider(self, name: str) -> Provider:
        """Give the provider of that name. Raises ProviderError."""
        ...

    def step_limit(self, settings: SessionSettings) -> int:
        """Give the largest number of steps of a turn."""
        ...

    async def tools(self) -> tuple[ToolSchema, ...]:
        """Give the tools that are there now, in their order."""
        ...

    def attach(self, results: PastResults) -> None:
        """Say where the session's earlier results are read."""
        ...

    def meter(self, model: str) -> ModelTokenMeter:
        """Give the meter of `provider/model`. Raises TokenMeterError for a model whose window nobody stated."""
        ...

    def compaction(self, model: str, settings: SessionSettings) -> CompactionConfig:
        """Tell how the history of a session with the model `provider/model` and these settings is compacted."""
        ...

    def retries(self) -> RetryConfig:
        """Tell which failed requests are sent again, and when."""
        ...

    def live_checks(self) -> CheckMode:
        """Tell which requests are compared with the log before they leave."""
        ...

    def is_read_only(self, tool: str) -> bool:
        """Tell whether calls of that tool may run beside others; an unknown tool's may, since it only answers an error."""
        ...

    def permission_mode(self, settings: SessionSettings) -> Mode:
        """Tell what becomes of calls that change something."""
        ...

    def approval_limit_s(self) -> float:
        """Give how long a question waits for its answer, in seconds."""
        ...

    async def propose(self, call_id: CallId, name: str, arguments: str) -> Proposed | ToolAnswer | None:
        """Work out what a call that changes something would do; None for one that may just run, an answer for one that
        cannot be done. Never raises but for cancellation."""
        ...

    async def run_tool(self, call_id: CallId, name: str, arguments: str) -> ToolAnswer:
        """Run a call in the session's workspace; never raises but for cancellation."""
        ...


class Instance:
    """One loop instance. `composition` is None until its prefix was composed; `anchored` tells whether its header snapshot is
    written."""

    def __init__(
        self, session_log: SessionLog, host: Host, hooks: SessionHooks, system: str, client: ClientInfo | None = None
    ) -> None:
        self.session_log = session_log
        self.host = host
        self.hooks = hooks
        self.system = system
        self.composition: Composition | None = None
        self.anchored = False
        self.approvals = Approvals(session_log)
        self.digest = RequestDigest()
        self.live_check = LiveCheck(session_log.handle, host.live_checks())
        self._client = client
        self._number = session_log.folds.work.instance + 1
        self._fresh = session_log.handle.tail < 0
        self._tools: tuple[ToolSchema, ...] | None = None
        self._generation = 0
        self._settings_used: SessionSettings | None = None
        self._encoder: BodyEncoder | None = None
        self._dialect: str | None = None
        host.attach(LoggedResults(session_log, self._readable))
        hooks.report = self._record_failure
        if hooks.observes:
            session_log.handle.observe(self._observed)
            session_log.handle.watch_durable(hooks.flushed)

    @property
    def prefix(self) -> tuple[Message, ...] | None:
        """The composed prefix; None until it was composed."""
        return None if self.composition is None else self.composition.messages

    @property
    def number(self) -> int:
        """This instance's number in its session, from 1; taken whether or not its start is in the log yet."""
        return self._number

    def opening(self) -> tuple[Draft, ...]:
        """Give what must stand before this instance's first own event: its start, once."""
        if self.session_log.folds.work.instance >= self._number:
            return ()
        reason = "new" if self._fresh else "fork" if self.session_log.inherited else "resume"
        return (Draft(InstanceStart(self._number, reason, self._client)),)

    async def offered_tools(self) -> tuple[ToolSchema, ...]:
        """Give the tools that are there now. What an earlier request offered besides is added where a list is decided: else
        whoever adds a tool at each step would find it here already."""
        return await self.host.tools()

    def frozen_tools(self, offered: tuple[ToolSchema, ...], config: CallConfig) -> tuple[ToolSchema, ...]:
        """Give this instance's tools, decided by its first request and again where the history is paid anew anyway: with
        another model, after a replace, or when the user asked for it.

        Those of the log's last header come first, in their order; one whose provider is gone keeps its schema, and its calls
        are answered with an error. Every provider renders tools before the history, so a list that changed otherwise would
        make it be paid again.
        """
        self._tools = self.next_tools(offered, config)
        self._generation = self.session_log.folds.request_state.surface.replace_generation
        return self._tools

    def next_tools(self, offered: tuple[ToolSchema, ...], config: CallConfig) -> tuple[ToolSchema, ...]:
        """Give the tools that the next request would have, without deciding it."""
        request_state = self.session_log.folds.request_state
        before = (
            None if request_state.header is None else (request_state.header.config.provider, request_state.header.config.model)
        )
        breaks = before != (config.provider, config.model) or request_state.surface.replace_generation != self._generation
        return self._in_order(offered) if self._tools is None or breaks else self._tools

    def thaw_tools(self) -> None:
        """Let new and changed tools join with the next request: the user asked for it and pays the history again."""
        self._tools = None

    def config_seed(self) -> CallConfig:
        """Give the call config before `agent/request`: resolved anew for the first call of an instance and after the
        settings changed, else the recorded one."""
        config = self.next_config()
        self._settings_used = self.session_log.folds.settings
        return config

    def next_config(self) -> CallConfig:
        """Give the call config that the next request begins with, without beginning it."""
        settings = self.session_log.folds.settings
        header = self.session_log.folds.request_state.header
        if header is None or not self.anchored or settings != self._settings_used:
            return self.host.call_config(settings)
        return header.config

    def check_config(self, config: CallConfig) -> None:
        """Raise for a config that no request can be made with: its provider or dialect is unknown, or its options are."""
        self.host.provider(config.provider)
        dialect = dialect_named(config.dialect)
        if config.extra is not None:
            dialect.check_extra(config.extra)
        dialect.encode(Request(canonical_header(EpochHeader(config)), AppendOnlyList()), {})

    def encoder(self, dialect: str) -> BodyEncoder:
        """Give the encoder of a dialect, with the fragments that it has encoded already."""
        if self._encoder is None or dialect != self._dialect:
            self._encoder, self._dialect = dialect_named(dialect).make_encoder(), dialect
        return self._encoder

    def _readable(self, text: str) -> int:
        """Give how many characters of a text fit the session's window; all of them where nobody stated it."""
        try:
            config = self.next_config()
            meter = self.host.meter(f"{config.provider}/{config.model}")
        except RefoldError:  # whoever asks the model says what is wrong with it
            return len(text)
        return readable(text, meter)

    def _in_order(self, tools: tuple[ToolSchema, ...]) -> tuple[ToolSchema, ...]:
        header = self.session_log.folds.request_state.header
        before = () if header is None or header.tools is None else header.tools
        now = {tool.name: tool for tool in tools}
        kept = tuple(now.pop(tool.name, tool) for tool in before)
        return (*kept, *now.values())

    def _record_failure(self, failure: PluginFailure) -> None:
        work = self.session_log.folds.work
        self.session_log.append(Draft(PluginFailed(failure.plugin, failure.hook, failure.message, work.turn, work.step)))

    def _observed(self, events: Sequence[Event]) -> None:
        for event in events:
            self.hooks.observe(event)
