"""Owns the way of a body to a provider over HTTP and of its stream back: sending, waiting, stopping.

The bytes that go out are those that came in. What comes back is decoded by the dialect as it arrives; where the answer is
no stream, or breaks, or takes too long, one ProviderError says so. Cancelling closes the connection. Retries nothing:
the loop decides that, because each attempt is recorded first.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, closing, suppress
from typing import TYPE_CHECKING, Final, cast
from urllib.parse import urlsplit

import anyio

from refold_protocol.dialects.dialect import Dialect
from refold_protocol.errors import ProviderError
from refold_protocol.session.messages import Chunk
from refold_protocol.session.request import Request
from refold_server.config import ProviderConfig, TimeoutsConfig
from refold_server.providers.credentials import Credentials
from refold_server.providers.http_client import HttpClient
from refold_server.providers.http_failures import (
    MAX_ERROR_BYTES,
    connection_error,
    media_type,
    not_a_stream,
    request_id,
    status_error,
)
from refold_server.providers.patience import Patience

if TYPE_CHECKING:
    import httpx

TAIL_SECONDS: Final = 5.0
"""How long what may follow a finish reason (the usage, the end marker) is waited for."""

DRAIN_SECONDS: Final = 0.1
"""How long the end of a body is waited for when the reply is complete, so that the connection can be used again."""

_PAGES: Final = ("text/html", "application/xhtml+xml", "application/json", "application/xml")
"""Media types that are certainly no event stream; others, and none at all, are given a try."""

_ENCODINGS: Final = ("", "identity", "gzip", "deflate")


class HttpProvider:
    """A provider behind an address. `now` gives Unix time in seconds."""

    def __init__(
        self,
        config: ProviderConfig,
        dialect: Dialect,
        timeouts: TimeoutsConfig,
        client: HttpClient,
        *,
        credentials: Credentials | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._url = f"{config.base_url}{dialect.path}"
        self._host = urlsplit(self._url).netloc
        self._config = config
        self._dialect = dialect
        self._timeouts = timeouts
        self._client = client
        self._credentials = Credentials(config) if credentials is None else credentials
        self._now = now

    async def stream(self, request: Request, body: bytes) -> AsyncGenerator[Chunk, None]:
        """Send `body` and give the chunks of the reply. See Provider.stream; each error has a kind, a sentence with a
        hint, and where known the status and the provider's name for the request."""
        del request  # the body says it all
        name: str | None = None
        try:
            client, headers = await self._client.get(), await self._headers()
            with closing(Patience(self._timeouts)) as patience:
                response = await self._send(client, headers, body, patience)
                name = request_id(response.headers)
                try:
                    await self._check(response, patience)
                    async with aclosing(self._chunks(response, patience)) as chunks:
                        async for chunk in chunks:
                            yield chunk
                finally:
                    await response.aclose()
        except ProviderError as error:  # made fit to be shown: hints that only this provider knows, no secrets
            raise self._told(error, name) from None

    async def _headers(self) -> dict[str, str]:
        headers = {"user-agent": "refold", "accept-encoding": "identity"} | dict(self._dialect.headers)
        headers.update((name.lower(), value) for name, value in self._config.headers)
        key = await self._credentials.key()
        if key is not None:
            headers[self._dialect.key_header] = f"{self._dialect.key_prefix}{key}"
        return headers

    async def _send(
        self, client: httpx.AsyncClient, headers: dict[str, str], body: bytes, patience: Patience
    ) -> httpx.Response:
        import httpx  # loaded when the client was made

        limits = httpx.Timeout(None, connect=self._timeouts.connect_s, pool=self._timeouts.connect_s)
        try:
            request = client.build_request("POST", self._url, content=body, headers=headers, timeout=limits)
            return await patience.wait(client.send(request, stream=True))
        except httpx.HTTPError as error:  # nothing of an answer has come
            raise connection_error(error, self._host, answered=False) from None

    async def _check(self, response: httpx.Response, patience: Patience) -> None:
        """Raise ProviderError unless the answer may be an event stream."""
        if response.status_code != 200:
            raise status_error(response.status_code, response.headers, await _beginning(response, patience), self._now())
        encoding = response.headers.get("content-encoding", "").strip().lower()
        if encoding not in _ENCODINGS:
            raise ProviderError("provider.badStream", f"the provider sent its answer in the encoding {encoding!r}, unasked")
        if media_type(response.headers) in _PAGES:
            raise not_a_stream(response.headers, await _beginning(response, patience))

    async def _chunks(self, response: httpx.Response, patience: Patience) -> AsyncGenerator[Chunk, None]:
        import httpx

        decoder = self._dialect.make_decoder()
        async with _reads(response) as reads:
            try:
                while not decoder.done and (data := await patience.wait(anext(reads, None))) is not None:
                    was_complete = decoder.complete
                    chunks = decoder.feed(data)
                    if chunks:
                        patience.rewarded()
                    if decoder.complete and not was_complete:
                        patience.end_within(TAIL_SECONDS)
                    for chunk in chunks:
                        yield chunk
                    if decoder.failure is not None:
                        raise decoder.failure
                last = decoder.close()
            except (httpx.HTTPError, ProviderError) as error:
                if not decoder.complete:
                    raise self._broken(error) from None
                last = decoder.close(cut=True)  # the reply had its end: nothing was lost, unless an error came behind it
            for chunk in last:
                yield chunk
            if decoder.failure is not None:
                raise decoder.failure
            await _drain(reads)

    def _broken(self, error: httpx.HTTPError | ProviderError) -> ProviderError:
        return error if isinstance(error, ProviderError) else connection_error(error, self._host, answered=True)

    def _told(self, error: ProviderError, name: str | None) -> ProviderError:
        message = error.message
        if error.error_kind == "provider.auth" and error.status is not None:
            self._credentials.forget()
            message = f"{message}; {self._credentials.hint}"
        return ProviderError(
            error.error_kind,
            self._credentials.scrub(message),
            status=error.status,
            retry_after_ms=error.retry_after_ms,
            request_id=error.request_id or name,
        )


def _reads(response: httpx.Response) -> aclosing[AsyncGenerator[bytes, None]]:
    """Give the body's pieces, decompressed, as they arrive."""
    return aclosing(cast("AsyncGenerator[bytes, None]", response.aiter_bytes()))


async def _beginning(response: httpx.Response, patience: Patience) -> bytes:
    """Read the beginning of a body that is no stream; what cannot be read is left out: the status says enough."""
    import httpx

    body = b""
    async with _reads(response) as reads:
        with suppress(httpx.HTTPError, ProviderError):
            while len(body) < MAX_ERROR_BYTES and (data := await patience.wait(anext(reads, None))) is not None:
                body += data
    return body[:MAX_ERROR_BYTES]


async def _drain(reads: AsyncGenerator[bytes, None]) -> None:
    import httpx

    with anyio.move_on_after(DRAIN_SECONDS), suppress(httpx.HTTPError):  # the reply is whole: nothing can be lost
        while await anext(reads, None) is not None:
            pass
