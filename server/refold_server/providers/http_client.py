"""Owns the one HTTP client of a process: made on first use, in a thread, because importing it takes time.

httpx takes 50 ms of CPU to import and its TLS context 50 more; neither belongs before `initialize` is answered nor on the
event loop. Proxies and certificates follow the environment (`HTTPS_PROXY`, `NO_PROXY`, `SSL_CERT_FILE`). Redirects are not
followed: a body that holds somebody's code goes to the configured address and nowhere else.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, cast

import anyio
import anyio.to_thread

from refold_protocol.errors import ProviderError

if TYPE_CHECKING:
    import httpx


class HttpClient:
    """Holds the client. Belongs to one event loop at a time."""

    def __init__(self) -> None:
        self._client: httpx.AsyncClient | None = None
        self._making = anyio.Lock()

    async def get(self) -> httpx.AsyncClient:
        """Give the client. Raises ProviderError `provider.unreachable` when the environment's proxy or certificate
        settings cannot be used."""
        if self._client is None:
            async with self._making:
                if self._client is None:
                    self._client = await anyio.to_thread.run_sync(_make)
        return self._client

    async def close(self) -> None:
        """Close all connections. Idempotent; a later `get` makes a new client."""
        client, self._client = self._client, None
        self._making = anyio.Lock()
        if client is not None:
            await client.aclose()


def _make() -> httpx.AsyncClient:
    # Where click and rich are installed, httpx imports its own command line too, which takes longer than all the rest of it.
    sys.modules.setdefault("httpx._main", cast("ModuleType", None))
    import httpx

    try:
        context = httpx.create_ssl_context()
        return httpx.AsyncClient(verify=context, timeout=30.0, follow_redirects=False, trust_env=True)
    except (OSError, ValueError, ImportError, httpx.InvalidURL) as error:  # nothing was made; the reason is the user's to mend
        raise ProviderError(
            "provider.unreachable",
            f"the proxy or certificate settings of the environment cannot be used ({type(error).__name__}: {error}); "
            "check HTTPS_PROXY, ALL_PROXY and SSL_CERT_FILE",
        ) from None
