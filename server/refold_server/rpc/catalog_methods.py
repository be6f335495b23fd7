"""Owns the handlers that list and tell: sessions, models, tools, health, the schema. They change nothing."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import anyio.to_thread
import msgspec
from msgspec import Raw

from refold_protocol.rpc.initialize import SCHEMA_DIGEST, VERSION
from refold_protocol.rpc.listing import (
    DaemonHealthResult,
    DaemonSchemaResult,
    LiveHealth,
    ModelListResult,
    SessionListResult,
    StoreHealth,
    ToolListResult,
    ToolRow,
)
from refold_protocol.rpc.params import NoParams, SessionListParams
from refold_protocol.rpc.schema import schema_of
from refold_protocol.rpc.wire_errors import WireError, bad_param
from refold_server.plugins.plugin_registry import plugin_stats
from refold_server.providers.login_store import known_logins
from refold_server.services import Services
from refold_server.sessions.session_list import page_of_sessions, read_cursor
from refold_server.sessions.session_registry import Sessions
from refold_server.sessions.session_reports import model_rows, provider_rows

Unsent = Callable[[], tuple[int, int]]
"""Gives the messages and the bytes that a connection has not been able to send yet."""


class CatalogMethods:
    """The requests of one connection that list and tell."""

    def __init__(self, sessions: Sessions, shared: Services, unsent: Unsent) -> None:
        self._sessions = sessions
        self._shared = shared
        self._unsent = unsent
        self._began = time.monotonic()

    async def sessions(self, params: SessionListParams) -> SessionListResult:
        """session/list."""
        try:
            before = None if params.cursor is None else read_cursor(params.cursor)
        except ValueError:
            fault = bad_param("session/list", "$.cursor", f"{params.cursor!r} is not the `next` of an earlier page")
            raise WireError(fault) from None
        return await page_of_sessions(self._sessions, params, before)

    async def models(self, params: NoParams) -> ModelListResult:
        """model/list."""
        del params
        config = self._shared.config
        logins = await anyio.to_thread.run_sync(known_logins)
        return ModelListResult(model_rows(config), provider_rows(config, os.environ, logins))

    async def tools(self, params: NoParams) -> ToolListResult:
        """tool/list."""
        del params
        registry = self._shared.registry
        brought = {one.tool.schema.name: one.plugin for one in self._shared.plugins.tools}
        rows: list[ToolRow] = []
        for schema in registry.schemas:
            tool = registry.find(schema.name)
            read_only = tool is not None and tool.read_only
            parameters = Raw(schema.parameters.encode())
            plugin = brought.get(schema.name)
            source = "builtin" if plugin is None else f"plugin:{plugin}"
            rows.append(ToolRow(schema.name, schema.description, parameters, read_only, source))
        return ToolListResult(tuple(rows))

    async def health(self, params: NoParams) -> DaemonHealthResult:
        """daemon/health."""
        del params
        state = self._sessions.store.vitals()
        store = StoreHealth(
            state.path, state.format, state.file_bytes, state.map_bytes, state.used_bytes, state.sessions, len(state.readers)
        )
        live = tuple(
            LiveHealth(
                session.id,
                session.status().status,
                session.session_log.handle.tail,
                session.session_log.handle.durable,
                trouble=None if session.session_log.handle.trouble is None else session.session_log.handle.trouble.message,
            )
            for session in self._sessions
        )
        uptime = int((time.monotonic() - self._began) * 1000)
        plugins = plugin_stats(self._shared.plugins)
        return DaemonHealthResult(VERSION, os.getpid(), uptime, store, live, plugins, *self._unsent())

    async def schema(self, params: NoParams) -> DaemonSchemaResult:
        """daemon/schema."""
        del params
        return DaemonSchemaResult(SCHEMA_DIGEST, Raw(msgspec.json.encode(schema_of())))
