"""Owns the handlers that change a session from outside its turns: configure, rename, inject, withdraw.

Each reply is sent after what it names is durable.
"""

from __future__ import annotations

from refold_protocol.rpc.listing import InputResult, SeqResult, SessionConfigureResult
from refold_protocol.rpc.params import (
    InputWithdrawParams,
    SessionConfigureParams,
    SessionInjectParams,
    SessionRenameParams,
    input_content,
)
from refold_protocol.rpc.settings_params import compaction_settings
from refold_protocol.session.events import LimitSettings, PermissionSettings
from refold_protocol.session.messages import Source
from refold_server.rpc.dispatch import refuse_blank
from refold_server.sessions.session_registry import Sessions
from refold_server.sessions.session_settings import SettingsPatch


class ChangeMethods:
    """The changes that one connection makes. `source` is who they come from."""

    def __init__(self, sessions: Sessions, source: Source) -> None:
        self._sessions = sessions
        self._source = source

    async def configure(self, params: SessionConfigureParams) -> SessionConfigureResult:
        """session/configure."""
        patch = params.patch
        limits = None if patch.limits is None else LimitSettings(patch.limits.steps)
        permissions = None if patch.permissions is None else PermissionSettings(patch.permissions.mode)
        compaction = compaction_settings(patch.compaction)
        wanted = SettingsPatch(patch.model, patch.effort, permissions, limits, compaction, tools_now=patch.tools == "now")
        settings, seq = await self._sessions.writable(params.session).configure(wanted)
        return SessionConfigureResult(settings, seq)

    async def rename(self, params: SessionRenameParams) -> SeqResult:
        """session/rename."""
        return SeqResult(await self._sessions.writable(params.session).rename(params.title, self._source))

    async def inject(self, params: SessionInjectParams) -> InputResult:
        """session/inject."""
        refuse_blank("session/inject", params.content)
        source = Source(params.source.kind, params.source.name)
        accepted = await self._sessions.writable(params.session).inject(input_content(params.content), source)
        return InputResult(accepted.input, accepted.seq, accepted.turn)

    async def withdraw(self, params: InputWithdrawParams) -> SeqResult:
        """input/withdraw."""
        return SeqResult(await self._sessions.writable(params.session).withdraw(params.input))
