"""Results of the methods that list things and tell how the daemon is: sessions, models, tools, health, schema.

Shapes only. Counts are numbers of things, sizes are in bytes, durations in milliseconds, times in Unix epoch milliseconds.

Params and the result of `meter/read`: how full a model's window is. Shapes only.

Params and the result of `prefix/compose`: what stands before a session's history, and who said it.

Shapes only. Bytes and digests are those of the messages as compact JSON, as a header holds them; tokens are estimated.

Handlers that list and tell: sessions, models, tools, health, the schema. They change nothing.

Handler of `meter/read`: how full a model's window is.

Handler of `prefix/compose`: what stands before a session's history.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Final

import anyio.to_thread
import msgspec
from msgspec import Raw, Struct

from refold_protocol.ids import SessionId
from refold_protocol.rpc.initialize import SCHEMA_DIGEST, VERSION
from refold_protocol.rpc.wire_errors import WireError, bad_param
from refold_server.plugins.plugin_registry import PluginHealth, plugin_stats
from refold_server.providers.login_store import known_logins
from refold_server.requests.session_log import load
from refold_server.requests.session_meters import MeteredLog
from refold_server.rpc.dispatch import Handler
from refold_server.rpc.method import Method, NoParams, request_row
from refold_server.rpc.wire_schema import schema_of
from refold_server.services import Services
from refold_server.sessions.session_list import SessionListParams, SessionListResult, page_of_sessions, read_cursor
from refold_server.sessions.session_registry import Sessions
from refold_server.sessions.session_reports import (
    LoadedLog,
    MeterReadResult,
    ModelRow,
    PrefixComposeResult,
    ProviderRow,
    compose_session,
    model_rows,
    provider_rows,
    read_meter,
)
from refold_server.sessions.session_views import reading


class ModelListResult(Struct, frozen=True, gc=False):
    """`model/list`: the models that the configuration names, and the providers behind them, both in its order."""

    models: tuple[ModelRow, ...]
    providers: tuple[ProviderRow, ...]


class ToolRow(Struct, frozen=True, gc=False, rename="camel"):
    """A tool as models are told of it. `parameters` is its JSON Schema; `source` is `builtin`, or `plugin:NAME`."""

    name: str
    description: str
    parameters: Raw
    read_only: bool
    source: str


class ToolListResult(Struct, frozen=True, gc=False):
    """`tool/list`: in the order in which models are told of them."""

    tools: tuple[ToolRow, ...]


class StoreHealth(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """The store: its format version, the size of its data file, of its map and of what is used of it, in bytes."""

    path: str
    format: int
    file_bytes: int
    map_bytes: int
    used_bytes: int
    sessions: int
    readers: int


class LiveHealth(Struct, frozen=True, gc=False, omit_defaults=True):
    """A session that this daemon has open for writing. `trouble` says why its log cannot be written."""

    session: SessionId
    status: str
    tail: int
    durable: int
    trouble: str | None = None


class DaemonHealthResult(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """`daemon/health`. `plugins` are in the order in which they were loaded; `unsent` counts replies and requests that the
    client has not read."""

    version: str
    pid: int
    uptime_ms: int
    store: StoreHealth
    sessions: tuple[LiveHealth, ...]
    plugins: tuple[PluginHealth, ...] = ()
    unsent: int = 0
    unsent_bytes: int = 0


class DaemonSchemaResult(Struct, frozen=True, gc=False):
    """`daemon/schema`: the method table as JSON Schema, and its digest."""

    digest: str
    schema: Raw


class MeterReadParams(Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """`meter/read`: what the next request would cost `model` (`provider/model`), by default the one that the session used or
    was given last."""

    session: SessionId
    model: str | None = None


class PrefixComposeParams(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """`prefix/compose`."""

    session: SessionId


Unsent = Callable[[], tuple[int, int]]
"""Gives the messages and the bytes that a connection has not been able to send yet."""


class MetaMethods:
    """The requests of one connection that list and tell."""

    def __init__(self, sessions: Sessions, shared: Services, unsent: Unsent, methods: Mapping[str, Method]) -> None:
        self._sessions = sessions
        self._shared = shared
        self._unsent = unsent
        self._methods = methods
        self._began = time.monotonic()

    def handlers(self) -> Mapping[str, Handler]:
        """Give the handlers by method name."""
        return {
            "session/list": self.sessions,
            "model/list": self.models,
            "tool/list": self.tools,
            "daemon/health": self.health,
            "daemon/schema": self.schema,
            "meter/read": self.meter,
            "prefix/compose": self.compose,
        }

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
        return DaemonSchemaResult(SCHEMA_DIGEST, Raw(msgspec.json.encode(schema_of(self._methods))))

    async def meter(self, params: MeterReadParams) -> MeterReadResult:
        """meter/read."""
        async with reading(self._sessions, params.session) as (handle, _):
            live = self._sessions.live(params.session)
            log: MeteredLog = (
                live.session_log
                if live is not None and live.session_log.handle is handle
                else LoadedLog(handle, await load(handle, handle.tail))
            )
            return await read_meter(self._shared.meters, self._shared.config, log, handle.record, params.model)

    async def compose(self, params: PrefixComposeParams) -> PrefixComposeResult:
        """prefix/compose."""
        return await compose_session(self._sessions, params.session)


METHODS: Final = (
    request_row("session/list", SessionListParams, SessionListResult, "List sessions, the latest active first."),
    request_row("prefix/compose", PrefixComposeParams, PrefixComposeResult, "Say what begins each request."),
    request_row("meter/read", MeterReadParams, MeterReadResult, "Say how full a model's window is."),
    request_row("model/list", NoParams, ModelListResult, "List the configured models and providers."),
    request_row("tool/list", NoParams, ToolListResult, "List the tools that models are told of."),
    request_row("daemon/health", NoParams, DaemonHealthResult, "Tell how the daemon and its store are."),
    request_row("daemon/schema", NoParams, DaemonSchemaResult, "Give this table as JSON Schema."),
)
"""The methods of this family."""
