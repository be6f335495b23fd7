"""Connections over HTTP: one client for each way to providers, made on first use, and a request that a dead one did not take.

httpx takes 50 ms of CPU to import and its TLS context 50 more; neither belongs before `initialize` is answered nor on the
event loop, so clients are made on first use, in a thread. The environment is read here and in `proxy_route.py`, not by
httpx. Redirects are not followed: a body that holds somebody's code, and a key, go to the configured address and nowhere else.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, cast

import anyio
import anyio.to_thread
from msgspec import Struct
from msgspec.structs import replace

from refold_protocol.dialects.provider_failures import short
from refold_protocol.errors import ProviderError
from refold_server.config import ProviderConfig
from refold_server.providers.proxy_route import ProxyRoute, route_to

if TYPE_CHECKING:
    import ssl

    import httpx

    from refold_server.providers.reply_recording import ReplyRecorder

KEEP_SECONDS: Final = 4.0
"""How long an idle connection is kept: servers close theirs after five seconds, many of them."""


class ConnectionSettings(Struct, frozen=True):
    """What providers that share connections have in common. Without `keeps` each request has a connection of its own; without
    `tls` none is encrypted, and the certificates of the system need not be read."""

    route: ProxyRoute = ProxyRoute()
    ca_file: Path | None = None
    client_cert: Path | None = None
    client_key: Path | None = None
    keeps: bool = True
    tls: bool = True


def connection_settings(config: ProviderConfig, url: str, environment: Mapping[str, str] = os.environ) -> ConnectionSettings:
    """Give what connections to `url` are made with. Raises ProviderError for a proxy that is none."""
    route = route_to(url, config.proxy, f"providers.{config.name}.proxy", environment)
    tls = route.proxy is not None or not url.startswith("http:")
    return ConnectionSettings(route, config.ca_file, config.client_cert, config.client_key, tls=tls)


class HttpClients:
    """The clients of a process. Belongs to one event loop at a time."""

    def __init__(self, make: Callable[[ConnectionSettings], httpx.AsyncClient] | None = None) -> None:
        self.recorder: ReplyRecorder | None = None
        """Keeps what comes, where that was asked for."""
        self._make = _make if make is None else make
        self._clients: dict[ConnectionSettings, httpx.AsyncClient] = {}
        self._making = anyio.Lock()

    async def client(self, settings: ConnectionSettings) -> httpx.AsyncClient:
        """Give the client. Raises ProviderError `provider.unreachable` when its proxy or its certificates cannot be used."""
        if settings not in self._clients:
            async with self._making:
                if settings not in self._clients:
                    self._clients[settings] = await anyio.to_thread.run_sync(self._make, settings)
        return self._clients[settings]

    async def send(self, settings: ConnectionSettings, make: Callable[[httpx.AsyncClient], httpx.Request]) -> httpx.Response:
        """Send a request and give the answer, its body unread. A kept connection that dies before it gave a byte did nothing:
        then the request goes out once more, on a new one. Raises what httpx raises."""
        import httpx

        client, connected = await self.client(settings), list[str]()
        request = make(client)
        request.extensions = {**request.extensions, "trace": _connects(connected)}
        try:
            return await client.send(request, stream=True)
        except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError) as error:
            if connected or not _gave_nothing(error):
                raise
        fresh = await self.client(replace(settings, keeps=False))
        return await fresh.send(make(fresh), stream=True)

    async def close(self) -> None:
        """Close all connections. Idempotent; whoever asks later gets new ones."""
        clients, self._clients = self._clients, {}
        self._making = anyio.Lock()
        for client in clients.values():
            await client.aclose()


def proxy_error(error: httpx.HTTPError, route: ProxyRoute, host: str) -> ProviderError | None:
    """Give the error of a connection that the proxy of `route` refused or could not be asked for; None for any other."""
    import httpx

    if route.proxy is None:
        return None
    if isinstance(error, httpx.ProxyError):
        said = short(str(error), 120)
        why = "it wants a user and a password" if said.startswith("407") else f"it said: {said}"
        message = f"the proxy {route.shown} did not let the request to {host} through; {why}"
    elif isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        message = f"the proxy {route.shown}, through which {host} is reached, could not be reached itself; is it right?"
    else:
        return None
    lasting = isinstance(error, httpx.ProxyError) and "407" in str(error)
    return ProviderError("provider.unreachable", f"{message}; NO_PROXY exempts addresses", lasting=lasting)


def _connects(connected: list[str]) -> Callable[[str, Mapping[str, Any]], Awaitable[None]]:
    """Give what httpcore calls at each stage of a request; `connected` gets a row for a new connection."""

    async def trace(stage: str, _: Mapping[str, Any]) -> None:
        if stage.endswith("connect_tcp.started"):
            connected.append(stage)

    return trace


def _gave_nothing(error: httpx.HTTPError) -> bool:
    """Tell whether no byte of an answer came: an answer that came and was rubbish is a protocol error as well."""
    import httpx

    return not isinstance(error, httpx.RemoteProtocolError) or "without sending a response" in str(error)


def _make(settings: ConnectionSettings) -> httpx.AsyncClient:
    # Where click and rich are installed, httpx imports its own command line too, which takes longer than all the rest of it.
    sys.modules.setdefault("httpx._main", cast("ModuleType", None))
    import httpx

    limits = httpx.Limits(keepalive_expiry=KEEP_SECONDS, max_keepalive_connections=20 if settings.keeps else 0)
    try:
        return httpx.AsyncClient(
            verify=_tls(settings) if settings.tls else False,
            proxy=settings.route.proxy,
            limits=limits,
            timeout=30.0,
            follow_redirects=False,
            trust_env=False,
        )
    except (OSError, ValueError, ImportError, httpx.InvalidURL) as error:  # nothing was made; the reason is the user's to mend
        raise ProviderError("provider.unreachable", _unusable(settings, error), lasting=True) from None


def _tls(settings: ConnectionSettings) -> ssl.SSLContext:
    import httpx

    context = httpx.create_ssl_context()
    if settings.ca_file is not None:
        context.load_verify_locations(settings.ca_file)
    if settings.client_cert is not None:
        context.load_cert_chain(settings.client_cert, settings.client_key)
    return context


def _unusable(settings: ConnectionSettings, error: Exception) -> str:
    if isinstance(error, ImportError):
        return f"the proxy {settings.route.shown} needs the package socksio, which is not installed"
    files = "SSL_CERT_FILE, and ca_file, client_cert and client_key of the provider"
    return f"the certificates for the connection cannot be used ({type(error).__name__}: {error}); check {files}"
