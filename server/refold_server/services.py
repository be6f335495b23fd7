"""What all sessions of a process share, and what each finds around it: call configs, providers, tools, plugins, the store.

Providers are opened once per process and shared by its sessions; a workspace belongs to one session. The tool `read_skill`
is offered where there is a skill to read when an instance offers tools first, `read_result` where a result was shortened, and
neither to a session that would pay for nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path

import anyio.to_thread
from msgspec.structs import replace

from refold_protocol.errors import ConfigError, ProviderError
from refold_protocol.ids import CallId
from refold_protocol.session.events import SessionSettings, readable
from refold_protocol.session.messages import CallConfig, ToolSchema
from refold_protocol.session.model_windows import LearnedWindow
from refold_server.call_config import call_config, permission_mode, step_limit
from refold_server.clock import epoch_ms, uuid7
from refold_server.compaction.compaction_decision import policy_of
from refold_server.config import CompactionConfig, Config, Mode, RetryConfig, StoreConfig, ToolsConfig
from refold_server.plugins.loop_watch import Watch
from refold_server.plugins.plugin_loading import ImportThreads, load_plugins_in_threads, plugin_sources
from refold_server.plugins.plugin_registry import NO_PLUGINS, Plugins
from refold_server.prefix.contributors import PrefixSources, built_in
from refold_server.providers.credentials import add_secrets
from refold_server.providers.http_provider import HttpProvider
from refold_server.providers.provider_registry import Provider, close_providers, open_provider
from refold_server.providers.told_window import ToldWindow
from refold_server.requests.live_check import CheckMode
from refold_server.requests.session_meters import Meters, ModelTokenMeter
from refold_server.tools.open_buffers import NO_BUFFERS, OpenBuffers
from refold_server.tools.read_result import READ_RESULT
from refold_server.tools.read_skill import READ_SKILL
from refold_server.tools.session_tools import ToolTable, offered_tools
from refold_server.tools.skill_index import SkillFolders, has_skills
from refold_server.tools.text_file import SeenTexts
from refold_server.tools.tool import PastResults, ToolContext
from refold_server.tools.tool_runner import Proposed, ToolAnswer, execute, propose
from refold_server.tools.workspace_path import Workspace
from refold_storage.interface import Store
from refold_storage.lmdb_store import open_store


class Services:
    """What all sessions of a process share; `buffers` is what the editor has open, if there is one, `loaded` the plugins
    besides those that come with refold. Raises ConfigError for tools that are not there."""

    def __init__(self, config: Config, buffers: OpenBuffers = NO_BUFFERS, loaded: Plugins = NO_PLUGINS) -> None:
        self.config = config
        self.buffers = buffers
        self.registry = offered(config, loaded)
        self.meters = Meters(config)
        self.plugins: Plugins = built_in(config.prefix, PrefixSources(lambda: self.shelf, buffers)).then(loaded)
        """What takes part at the hooks of every session: what comes with refold first."""
        self.watch = Watch(loaded)
        self._providers: dict[str, Provider] = {}
        self._readable = ExitStack()
        self._readable.enter_context(readable(one.name for one in loaded.event_types))

    @cached_property
    def shelf(self) -> SkillFolders:
        """Where skills lie besides a session's folder."""
        from refold_server.config_file import (
            default_skills_path,  # on use: it imports what starts of the daemon need not wait for
        )

        own = self.config.prefix.skills_folder
        try:
            return SkillFolders(own or default_skills_path(), Path.home())
        except (ConfigError, RuntimeError):  # a user without a home folder
            return SkillFolders(own, None)

    def host(self, cwd: str) -> SessionServices:
        """Give the host of a session whose folder is `cwd`."""
        return SessionServices(self, Workspace(Path(cwd)))

    def provider(self, name: str) -> Provider:
        """Give a provider. Raises ProviderError `model.unconfigured` when none of that name is configured (any more)."""
        known = self._providers.get(name)
        if known is None:
            config = self.config.provider(name)
            if config is None:
                raise ProviderError("model.unconfigured", f"no provider {name!r} is configured any more")
            known = self._providers[name] = open_provider(config, self.config.timeouts)
        return known

    async def close(self) -> None:
        """Give back what providers hold, and let foreign events be foreign again. Idempotent."""
        self.watch.stop()
        self._readable.close()
        await close_providers()


async def load_services(
    config: Config,
    buffers: OpenBuffers = NO_BUFFERS,
    aside: ImportThreads | None = None,
    left_out: Callable[[ConfigError], None] | None = None,
) -> Services:
    """Load the plugins that the configuration names and give what all sessions share. `aside` remembers those that took too
    long, for whoever tries again. Raises ConfigError; with `left_out` a plugin that cannot be loaded is told there, and no tool
    is offered then."""
    add_secrets(config.providers, os.environ)  # before plugins are loaded, whose faults may repeat them
    sources = plugin_sources(config.plugins)
    missing: list[ConfigError] = []

    def told(error: ConfigError) -> None:
        missing.append(error)
        if left_out is not None:
            left_out(error)

    loaded = await load_plugins_in_threads(
        sources, config.plugins.load_timeout_s, aside or ImportThreads(), told if left_out else None
    )
    shared = Services(replace(config, tools=ToolsConfig(())) if missing else config, buffers, loaded)
    if loaded.loaded:
        shared.watch.start()
    return shared


def offered(config: Config, loaded: Plugins) -> ToolTable:
    """Give the tools that are offered to models. Raises ConfigError for one that is enabled and not there."""
    written = config.tools.enabled_written
    try:
        return offered_tools((one.tool for one in loaded.tools), config.tools.enabled)
    except ConfigError as error:
        reason = error.message.removeprefix(f"{error.key}: ")
        raise ConfigError(error.key, reason, file=written.file, line=written.line) from None


class SessionServices:
    """The host of one session."""

    def __init__(self, shared: Services, workspace: Workspace) -> None:
        self._shared = shared
        self._workspace = workspace
        self._reads_skills: bool | None = None
        self._seen = SeenTexts()
        self._results: PastResults | None = None

    def call_config(self, settings: SessionSettings) -> CallConfig:
        """Resolve the call config. Raises ConfigError and ProviderError `model.unconfigured`."""
        return call_config(self._shared.config, settings)

    def provider(self, name: str) -> Provider:
        """Give a provider. Raises ProviderError."""
        return self._shared.provider(name)

    def step_limit(self, settings: SessionSettings) -> int:
        """Give the largest number of steps of a turn."""
        return step_limit(self._shared.config, settings)

    async def tools(self) -> tuple[ToolSchema, ...]:
        """Give the tools that are there, in their order. The first call looks through folders, in a thread."""
        if self._reads_skills is None:
            wanted = self._shared.config.prefix.skills and self._shared.registry.find(READ_SKILL) is not None
            root, shelf = self._workspace.root, self._shared.shelf
            there = wanted and await anyio.to_thread.run_sync(has_skills, root, shelf, abandon_on_cancel=True)
            self._reads_skills = there
        idle = {READ_SKILL: not self._reads_skills, READ_RESULT: self._results is None or not self._results.are_shortened}
        return tuple(one for one in self._shared.registry.schemas if not idle.get(one.name, False))

    def attach(self, results: PastResults) -> None:
        """Say where the session's earlier results are read."""
        self._results = results

    def meter(self, model: str, learned: LearnedWindow | None = None) -> ModelTokenMeter:
        """Give the meter of `provider/model`, of whose window a session learned that. Raises TokenMeterError."""
        return self._shared.meters.meter_for(model, learned)

    async def told_window(self, model: str) -> ToldWindow | None:
        """Ask the server of `provider/model` for its window, where the configuration states none."""
        if self._shared.config.profile(model).context_window is not None:
            return None
        name, _, asked = model.partition("/")
        provider = self._shared.provider(name)
        return await provider.window(asked) if isinstance(provider, HttpProvider) else None

    def compaction(self, model: str, settings: SessionSettings) -> CompactionConfig:
        """Tell how the history of a session with the model `provider/model` and these settings is compacted."""
        return policy_of(self._shared.config.compaction_of(model), settings)

    def retries(self) -> RetryConfig:
        """Tell which failed requests are sent again, and when."""
        return self._shared.config.retry

    def live_checks(self) -> CheckMode:
        """Tell which requests are compared with the log before they leave."""
        return self._shared.config.checks.live

    def is_read_only(self, tool: str) -> bool:
        """Tell whether calls of that tool may run beside others."""
        found = self._shared.registry.find(tool)
        return found is None or found.read_only

    def permission_mode(self, settings: SessionSettings) -> Mode:
        """Tell whether calls that change something run, do not run, or are asked about."""
        return permission_mode(self._shared.config, settings)

    def approval_limit_s(self) -> float:
        """Give how long a question waits for its answer, in seconds."""
        return self._shared.config.permissions.approval_timeout_s

    async def propose(self, call_id: CallId, name: str, arguments: str) -> Proposed | ToolAnswer | None:
        """Work out what a call that changes something would do; None for one that may just run."""
        context = self._context(call_id)
        return await propose(self._shared.registry, name, arguments, context)

    async def run_tool(self, call_id: CallId, name: str, arguments: str) -> ToolAnswer:
        """Run a call in the workspace."""
        context = self._context(call_id)
        return await execute(self._shared.registry, name, arguments, context)

    def _context(self, call_id: CallId) -> ToolContext:
        buffers, shelf = self._shared.buffers, self._shared.shelf
        return ToolContext(self._workspace, call_id, buffers=buffers, skills=shelf, seen=self._seen, results=self._results)


async def open_configured_store(config: StoreConfig, *, create: bool = True, client: str = "refold") -> Store:
    """Open the store; make it unless `create` is False, as for commands that only read. Raises what `open_store` raises."""
    return await open_store(
        config.path,
        new_uuid=uuid7,
        clock=epoch_ms,
        client=client,
        create=create,
        map_bytes=config.map_bytes,
        max_bytes=config.max_bytes,
    )
