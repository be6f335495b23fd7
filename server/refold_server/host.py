"""Owns what a loop instance finds around it: call configs, providers and tools, as the configuration says.

Providers are opened once per process and shared by its sessions; a workspace belongs to one session.
"""

from __future__ import annotations

from pathlib import Path

from refold_protocol.errors import ProviderError
from refold_protocol.ids import CallId
from refold_protocol.session.events import SessionSettings
from refold_protocol.session.header_types import CallConfig, ToolSchema
from refold_server.checks.live import CheckMode
from refold_server.config_call import call_config, permission_mode, step_limit
from refold_server.config_types import Config, Mode
from refold_server.providers.provider import Provider
from refold_server.providers.registry import close_providers, open_provider
from refold_server.tools.execute import Proposed, ToolAnswer, execute, propose
from refold_server.tools.open_buffers import NO_BUFFERS, OpenBuffers
from refold_server.tools.paths import Workspace
from refold_server.tools.registry import built_in_tools
from refold_server.tools.tool import ToolContext


class Surroundings:
    """What all sessions of a process share; `buffers` is what the editor has open, if there is one. Raises ConfigError for
    tools that are not there."""

    def __init__(self, config: Config, buffers: OpenBuffers = NO_BUFFERS) -> None:
        self.config = config
        self.buffers = buffers
        self.registry = built_in_tools(config.tools.enabled)
        self._providers: dict[str, Provider] = {}

    def host(self, cwd: str) -> SessionHost:
        """Give the host of a session whose folder is `cwd`."""
        return SessionHost(self, Workspace(Path(cwd)))

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
        """Give back what providers hold. Idempotent."""
        await close_providers()


class SessionHost:
    """The host of one session."""

    def __init__(self, shared: Surroundings, workspace: Workspace) -> None:
        self._shared = shared
        self._workspace = workspace

    def call_config(self, settings: SessionSettings) -> CallConfig:
        """Resolve the call config. Raises ConfigError and ProviderError `model.unconfigured`."""
        return call_config(self._shared.config, settings)

    def provider(self, name: str) -> Provider:
        """Give a provider. Raises ProviderError."""
        return self._shared.provider(name)

    def step_limit(self, settings: SessionSettings) -> int:
        """Give the largest number of steps of a turn."""
        return step_limit(self._shared.config, settings)

    def tools(self) -> tuple[ToolSchema, ...]:
        """Give the tools that are there, in their order."""
        return self._shared.registry.schemas

    def live_checks(self) -> CheckMode:
        """Tell which requests are compared with the log before they leave."""
        return self._shared.config.checks.live

    def is_read_only(self, tool: str) -> bool:
        """Tell whether calls of that tool may run beside others."""
        found = self._shared.registry.find(tool)
        return found is None or found.read_only

    def permission_mode(self, settings: SessionSettings) -> Mode:
        """Tell what becomes of calls that change something."""
        return permission_mode(self._shared.config, settings)

    def approval_limit_s(self) -> float:
        """Give how long a question waits for its answer, in seconds."""
        return self._shared.config.permissions.approval_timeout_s

    async def propose(self, call_id: CallId, name: str, arguments: str) -> Proposed | ToolAnswer | None:
        """Work out what a call that changes something would do; None for one that may just run."""
        context = ToolContext(self._workspace, call_id, buffers=self._shared.buffers)
        return await propose(self._shared.registry, name, arguments, context)

    async def run_tool(self, call_id: CallId, name: str, arguments: str) -> ToolAnswer:
        """Run a call in the workspace."""
        context = ToolContext(self._workspace, call_id, buffers=self._shared.buffers)
        return await execute(self._shared.registry, name, arguments, context)
