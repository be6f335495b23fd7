"""A provider over HTTP: a body sent, its stream read, within the time limits of the call.

The bytes that go out are those that came in. What comes back is decoded by the dialect as it arrives; where the answer is
no stream, or breaks, or takes too long, one ProviderError says so. Cancelling closes the connection. Retries nothing:
the loop decides that, because each attempt is recorded first.

httpx takes 50 ms of CPU to import and its TLS context 50 more; neither belongs before `initialize` is answered nor on the
event loop, so the client is made on first use, in a thread. Proxies and certificates follow the environment (`HTTPS_PROXY`,
`NO_PROXY`, `SSL_CERT_FILE`). Redirects are not followed: a body that holds somebody's code goes to the configured address and
nowhere else.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, closing, suppress
from types import ModuleType
from typing import TYPE_CHECKING, Final, TypeVar, cast
from urllib.parse import urlsplit

import anyio
import anyio.to_thread

from refold_protocol.dialects.dialect import Dialect, StreamDecoder
from refold_protocol.dialects.provider_failures import short
from refold_protocol.errors import ProviderError
from refold_protocol.session.messages import Chunk
from refold_protocol.session.request import Request
from refold_server.config import ProviderConfig, TimeoutsConfig
from refold_server.providers.answer_body import body_pieces, can_decode, content_encoding
from refold_server.providers.credentials import Credentials
from refold_server.providers.http_failures import (
    MAX_ERROR_BYTES,
    connection_error,
    not_a_stream,
    request_id,
    status_error,
)

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


GRACE_SECONDS: Final = 1.0
"""How much longer a limit is when it passes while nobody waits: what came meanwhile may lie there unread."""

T = TypeVar("T")


class CallDeadline:
    """The limits of one call, from its making on. Belongs to one task; `close` must be called."""

    def __init__(self, timeouts: TimeoutsConfig) -> None:
        self._timeouts = timeouts
        self._loop = asyncio.get_running_loop()
        self._end = self._last = self._loop.time() + timeouts.total_s
        self._limit = self._loop.time() + timeouts.first_output_s
        self._progressed = False
        self._waiting: asyncio.Task[object] | None = None
        self._expired = False
        self._timer = self._loop.call_at(min(self._limit, self._end), self._look)

    def progressed(self) -> None:
        """Note that output came: the limit between two outputs begins anew."""
        self._limit = self._loop.time() + self._timeouts.progress_s
        if not self._progressed:  # the first time, the limit may come closer
            self._progressed = True
            self._reset()

    def end_within(self, seconds: float | None) -> None:
        """Lower what is left of the call: all that matters has come. None takes that back: it went on."""
        self._end = self._last if seconds is None else min(self._end, self._loop.time() + seconds)
        self._reset()

    async def wait(self, awaitable: Awaitable[T]) -> T:
        """Await something for as long as is left. Raises ProviderError `provider.timeout`, which names the limit."""
        task = asyncio.current_task()
        assert task is not None
        requests = task.cancelling()
        self._waiting = task
        try:
            return await awaitable
        except asyncio.CancelledError:
            if self._expired and task.uncancel() <= requests:  # the timer's request, and nobody else's
                raise self._error() from None
            raise
        finally:
            self._waiting = None

    def close(self) -> None:
        """Stop the timer."""
        self._timer.cancel()

    def _reset(self) -> None:
        self._timer.cancel()
        self._timer = self._loop.call_at(min(self._limit, self._end), self._look)

    def _look(self) -> None:
        deadline = min(self._limit, self._end)
        if self._loop.time() < deadline:
            self._timer = self._loop.call_at(deadline, self._look)
        elif self._waiting is None:
            self._timer = self._loop.call_later(GRACE_SECONDS, self._look)
        else:
            self._expired = True
            self._waiting.cancel()

    def _error(self) -> ProviderError:
        limits = self._timeouts
        if self._end <= self._limit:
            what = f"no complete answer within {limits.total_s:g} s (timeouts.total_s)"
        elif self._progressed:
            what = f"no further output within {limits.progress_s:g} s (timeouts.progress_s)"
        else:
            what = f"no output within {limits.first_output_s:g} s of the request (timeouts.first_output_s)"
        return ProviderError("provider.timeout", f"the provider gave {what}; try again, or raise the limit")


TAIL_SECONDS: Final = 5.0
"""How long what may follow a finish reason (the usage, the end marker) is waited for."""

DRAIN_SECONDS: Final = 0.1
"""How long the end of a body is waited for when the reply is complete, so that the connection can be used again."""


class HttpProvider:
    """A provider at an address. `now` gives Unix time in seconds."""

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
        name: str | None = None
        try:
            client, headers = await self._client.get(), await self._headers()
            with closing(CallDeadline(self._timeouts)) as deadline:
                response = await self._send(client, headers, body, deadline)
                name = request_id(response.headers)
                try:
                    await self._check(response, deadline)
                    async with aclosing(self._chunks(response, request, deadline)) as chunks:
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
        self, client: httpx.AsyncClient, headers: dict[str, str], body: bytes, deadline: CallDeadline
    ) -> httpx.Response:
        import httpx  # loaded when the client was made

        limits = httpx.Timeout(None, connect=self._timeouts.connect_s, pool=self._timeouts.connect_s)
        try:
            request = client.build_request("POST", self._url, content=body, headers=headers, timeout=limits)
            return await deadline.wait(client.send(request, stream=True))
        except httpx.HTTPError as error:  # nothing of an answer has come
            raise connection_error(error, self._host, answered=False) from None

    async def _check(self, response: httpx.Response, deadline: CallDeadline) -> None:
        """Raise ProviderError unless the answer may be a reply. The decoder judges what it is, not its media type."""
        if not 200 <= response.status_code < 300:
            raise status_error(response.status_code, response.headers, await _beginning(response, deadline), self._now())
        encoding = content_encoding(response)
        if not can_decode(encoding):
            shown = short(encoding, 40)
            raise ProviderError("provider.badStream", f"the provider sent its answer in the encoding {shown!r}, unasked")

    async def _chunks(self, response: httpx.Response, request: Request, deadline: CallDeadline) -> AsyncGenerator[Chunk, None]:
        import httpx

        decoder = self._dialect.make_decoder(request.header.config.max_tokens)
        async with body_pieces(response) as reads:
            try:
                while not decoder.done and (data := await deadline.wait(anext(reads, None))) is not None:
                    was_complete = decoder.complete
                    chunks = decoder.feed(data)
                    if chunks:
                        deadline.progressed()
                    if decoder.complete != was_complete:
                        deadline.end_within(TAIL_SECONDS if decoder.complete else None)
                    for chunk in chunks:
                        yield chunk
                    if decoder.failure is not None:
                        raise decoder.failure
                last = decoder.close()
            except (httpx.HTTPError, ProviderError) as error:
                if not decoder.complete:
                    raise self._broken(error, response, decoder) from None
                last = decoder.close(cut=True)  # the reply had its end: nothing was lost, unless an error came after it
            for chunk in last:
                yield chunk
            if decoder.failure is not None:
                raise decoder.failure
            await _drain(reads)

    def _broken(
        self, error: httpx.HTTPError | ProviderError, response: httpx.Response, decoder: StreamDecoder
    ) -> ProviderError:
        if not isinstance(error, ProviderError):
            return connection_error(error, self._host, answered=True)
        if error.error_kind == "provider.badStream" and decoder.unread:
            return not_a_stream(response.status_code, response.headers, decoder.unread)
        return error

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


async def _beginning(response: httpx.Response, deadline: CallDeadline) -> bytes:
    """Read the beginning of a body that is no stream; what cannot be read is left out: the status says enough."""
    import httpx

    body = b""
    async with body_pieces(response) as reads:
        with suppress(httpx.HTTPError, ProviderError):
            while len(body) < MAX_ERROR_BYTES and (data := await deadline.wait(anext(reads, None))) is not None:
                body += data
    return body[:MAX_ERROR_BYTES]


async def _drain(reads: AsyncGenerator[bytes, None]) -> None:
    import httpx

    with anyio.move_on_after(DRAIN_SECONDS), suppress(httpx.HTTPError):  # the reply is whole: nothing can be lost
        while await anext(reads, None) is not None:
            pass
