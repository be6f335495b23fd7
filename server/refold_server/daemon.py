"""Owns `refold serve` from the moment at which `initialize` may have been answered: it puts the parts together.

The endpoint is the connection, the sessions are what it acts on; the store is opened with the first request that needs it.
Whatever ends the connection ends the turns first, then flushes and closes every session.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, Final

import anyio.lowlevel
from msgspec import Raw, Struct

from refold_protocol.errors import RefoldError
from refold_protocol.ids import SessionId
from refold_protocol.rpc.initialize import InitializeParams
from refold_protocol.session.events import AbortCause, ClientInfo
from refold_protocol.session.messages import Source
from refold_server.cli.exit_codes import exit_code_of_error
from refold_server.config import Config
from refold_server.config_file import load_config
from refold_server.lsp.lsp_bridge import LANGUAGE_METHODS, LspBridge, pygls_backend
from refold_server.plugins.plugin_loading import ImportThreads
from refold_server.rpc.approval_methods import ApprovalRequests
from refold_server.rpc.connection import Endpoint, EndReason, stdio_endpoint
from refold_server.rpc.descriptors import Handover
from refold_server.rpc.dispatch import Handler, Service
from refold_server.rpc.error_stream import stderr_never_waits
from refold_server.rpc.event_methods import EventMethods
from refold_server.rpc.method_table import METHODS, handlers
from refold_server.rpc.notices import StatusNotices, TroubleNotices
from refold_server.rpc.plain_client import PlainClient
from refold_server.rpc.progress import METHODS as PROGRESS_METHODS
from refold_server.rpc.progress import Progress, Trace
from refold_server.runner import run_to_its_end
from refold_server.secret_text import ScrubbingFormatter
from refold_server.services import Services, load_services, open_configured_store
from refold_server.sessions.session import Session
from refold_server.sessions.session_registry import Sessions

FINISH_SECONDS: Final = 60.0
"""How long a running step may go on after the client left, with `onDisconnect: finish`."""

logger = logging.getLogger(__name__)


class Places(Struct, frozen=True):
    """What the command line says: where sessions are kept, and which configuration file to read."""

    store: str | None = None
    config: str | None = None


def places(arguments: tuple[str, ...]) -> Places:
    """Read what `cli/serve.py` hands through the boot: store and configuration, empty for none."""
    store, config = arguments or ("", "")
    return Places(store or None, config or None)


def serve(handover: Handover) -> int:
    """Serve one connection to its end and give the exit code: LSP's 0 or 1, or that of what kept the daemon from starting."""
    with stderr_never_waits():
        return _serve(handover)


def _serve(handover: Handover) -> int:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(ScrubbingFormatter("refold: %(levelname)s: %(name)s: %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    try:
        daemon = Daemon(stdio_endpoint(handover), places(handover.arguments))
        return run_to_its_end(lambda: daemon.run(handover))
    except RefoldError as error:
        sys.stderr.write(f"refold: {error.error_kind}: {error.message}\n")
        return exit_code_of_error(error)


class _Ready(Struct, frozen=True):
    """What exists from the first request on that needs the store."""

    sessions: Sessions
    events: EventMethods
    asking: ApprovalRequests
    shared: Services
    handlers: Mapping[str, Handler]


class Daemon:
    """One connection's daemon."""

    def __init__(self, endpoint: Endpoint, places: Places) -> None:
        self._endpoint = endpoint
        self._places = places
        self._config: Config | None = None
        self._params = InitializeParams()
        self._ready: _Ready | None = None
        self._opening = asyncio.Lock()
        self._aside = ImportThreads()
        self._trace = Trace(endpoint.notify)
        self._client = PlainClient(endpoint.notify, endpoint.request)
        self._progress = Progress(endpoint.notify)
        self._language = LspBridge(endpoint, self._sessions, self._spawn, pygls_backend, self._progress, self._client.tell)
        self._group: asyncio.TaskGroup

    async def run(self, handover: Handover) -> int:
        """Serve to the end. Raises ConfigError for options that `initialize` brought and the boot could not judge."""
        if handover.initialize is not None:
            self._initialized(handover.initialize, handover.raw_params)
        async with asyncio.TaskGroup() as group:
            self._group = group
            group.create_task(anyio.lowlevel.checkpoint())  # its first use imports a lot: now, not while a session is opened
            handlers = self._trace.traced({**_lazily(self._natively), **self._language.handlers()})
            handlers |= {"$/setTrace": self._trace.set, "window/workDoneProgress/cancel": self._progress.cancel}
            return await self._endpoint.run(Service(handlers, self._initialized, METHODS | LANGUAGE_METHODS), self._on_end)

    async def _natively(self) -> _Ready:
        self._client.native = True
        return await self._prepared()

    def _initialized(self, params: InitializeParams, raw: Raw | None) -> None:
        options = params.initialization_options
        config = self._places.config
        self._config = load_config(
            None if config is None else Path(config),
            os.environ,
            options={} if options is None or options.model is None else {"model": options.model},
            store=self._places.store or (None if options is None else options.store),
        )
        logging.getLogger().setLevel(self._config.log.level.upper())
        for chatty in ("httpx", "httpcore"):  # they log addresses at `info`, and those may hold secrets
            logging.getLogger(chatty).setLevel(logging.WARNING)
        self._params = params
        self._trace.level = params.trace or "off"
        self._language.begin(params, raw)

    async def _prepared(self) -> _Ready:
        async with self._opening:
            if self._ready is None:
                self._ready = await self._open()
            return self._ready

    async def _sessions(self) -> Sessions:
        return (await self._prepared()).sessions

    async def _open(self) -> _Ready:
        assert self._config is not None  # nothing but `initialize` is dispatched before it
        shared = await load_services(self._config, self._language, self._aside)
        try:
            store = await open_configured_store(self._config.store, client=_client_name(self._params))
        except BaseException:
            await shared.close()
            raise
        info = self._params.client_info
        client = None if info is None else ClientInfo(info.name, info.version)
        source = Source("client", None if client is None else client.name)
        notices, troubles = StatusNotices(self._client.notify), TroubleNotices(self._client.notify)
        asking = ApprovalRequests(self._client.ask, self._group, source)

        def watch(session: Session) -> None:
            notices.watch(session)
            troubles.watch(session)
            asking.watch(session)

        sessions = Sessions(store, shared.host, self._spawn, client, watch, shared.plugins)

        def ask_again(session: SessionId) -> None:
            """Whoever opens or follows a session anew has not seen what was asked in it before."""
            live = sessions.live(session)
            if live is not None:
                asking.ask_again(live)

        events = EventMethods(sessions, self._endpoint, self._group, ask_again)
        served = handlers(sessions, shared, events, self._endpoint, self._progress, ask_again, source)
        gc.freeze()  # what is imported stays: collections that follow large logs need not walk through it again
        return _Ready(sessions, events, asking, shared, served)

    def _spawn(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._group.create_task(work())

    async def _on_end(self, reason: EndReason) -> None:
        self._language.close()
        if self._ready is None:
            return
        options = self._params.initialization_options
        cancel = reason in ("terminated", "exit") or (options is not None and options.on_disconnect == "cancel")
        if not cancel:
            self._ready.asking.leave(self._ready.sessions)
        troubles = await self._ready.sessions.close_all(
            AbortCause("disposed", reason), step_seconds=0 if cancel else FINISH_SECONDS
        )
        for trouble in troubles:
            logger.error("%s: %s", trouble.error_kind, trouble.message)
        await self._ready.events.end_all()
        await self._ready.shared.close()
        await self._ready.sessions.store.close()


def _client_name(params: InitializeParams) -> str:
    return "refold serve" if params.client_info is None else f"refold serve for {params.client_info.name}"


def _lazily(prepared: Callable[[], Awaitable[_Ready]]) -> Mapping[str, Handler]:
    """Give handlers that open the store before the first of them runs."""

    def handler(name: str) -> Handler:
        async def handle(params: Any) -> object:
            return await (await prepared()).handlers[name](params)

        return handle

    ours = ("initialize", "initialized", "shutdown", "exit", "$/cancelRequest", *(row.name for row in PROGRESS_METHODS))
    served = (row.name for row in METHODS.values() if row.direction == "to-daemon" and row.name not in ours)
    return {name: handler(name) for name in served}
