"""A provider over HTTP: a body sent, its stream read, within the time limits of the call.

The bytes that go out are those that came in. What comes back is decoded by the dialect as it arrives; where the answer is
no stream, or breaks, or takes too long, one ProviderError says so. Cancelling closes the connection. Retries nothing:
the loop decides that, because each attempt is recorded first.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, closing, suppress
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import anyio
from msgspec.structs import replace

from refold_protocol.dialects.dialect import Dialect, StreamDecoder
from refold_protocol.dialects.provider_failures import short
from refold_protocol.errors import ProviderError
from refold_protocol.session.messages import Chunk, FinishChunk
from refold_protocol.session.request import Request, request_sha256
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
from refold_server.providers.http_transport import ConnectionSettings, HttpClients, connection_settings, proxy_error
from refold_server.secret_text import SECRETS

if TYPE_CHECKING:
    import httpx

    from refold_server.providers.told_window import ToldWindow


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


WINDOW_SECONDS: Final = 1.0
"""So long each question for a window waits for its answer."""

TAIL_SECONDS: Final = 5.0
"""How long what may follow a finish reason (the usage, the end marker) is waited for."""

DRAIN_SECONDS: Final = 0.1
"""How long the end of a body is waited for when the reply is complete, so that the connection can be used again."""

MAX_ANSWER_BYTES: Final = 8 * 1024 * 1024
"""How much of an answer that is no reply is read: lists of models have a megabyte."""


class HttpProvider:
    """A provider at an address. `now` gives Unix time in seconds."""

    def __init__(
        self,
        config: ProviderConfig,
        dialect: Dialect,
        timeouts: TimeoutsConfig,
        clients: HttpClients,
        *,
        credentials: Credentials | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._host = urlsplit(str(config.base_url)).netloc
        self._config = config
        self._dialect = dialect
        self._timeouts = config.timeouts or timeouts
        self._clients = clients
        self._settings: ConnectionSettings | None = None
        self._credentials = Credentials(config) if credentials is None else credentials
        self._now = now

    def url(self, model: str, path: str | None = None) -> str:
        """Give the address of a request to `model`; `path` takes the place of the configured one."""
        place = (path or self._config.path or self._dialect.path).replace("{model}", quote(model, safe=""))
        query = urlencode(self._config.query)
        return f"{self._config.base_url}{place}{f'?{query}' if query else ''}"

    def _root(self) -> str:
        parts = urlsplit(self._config.base_url or "")
        return f"{parts.scheme}://{parts.netloc}"

    async def stream(self, request: Request, body: bytes) -> AsyncGenerator[Chunk, None]:
        """Send `body` and give the chunks of the reply. See Provider.stream; each error has a kind, a sentence with a
        hint, and where known the status and the provider's name for the request."""
        name: str | None = None
        try:
            headers = await self._headers()
            with closing(CallDeadline(self._timeouts)) as deadline:
                response = await self._answer(request, headers, body, deadline)
                name = request_id(response.headers)
                try:
                    await self._check(response, deadline)
                    async with aclosing(self._chunks(response, request, deadline)) as chunks:
                        async for chunk in chunks:
                            yield _scrubbed(chunk) if isinstance(chunk, FinishChunk) else chunk
                finally:
                    await response.aclose()
        except ProviderError as error:  # made fit to be shown: hints that only this provider knows, no secrets
            raise await self._told(error, name) from None

    async def window(self, model: str) -> ToldWindow | None:
        """Ask the server for the window of a model that is in force; None where it tells none, or not in time."""
        from refold_server.providers.told_window import questions_for, window_in  # on use: start-up need not wait for it

        for question in questions_for(self._config.base_url or ""):
            try:
                body = await self.get(question.path, WINDOW_SECONDS, at_root=question.at_root)
            except ProviderError:  # it knows no such question; nothing depends on an answer
                continue
            if (found := window_in(question, body, model)) is not None:
                return found
        return None

    async def get(self, path: str, seconds: float, *, at_root: bool = False) -> bytes:
        """Give the answer to a GET below the address, or below its server's root, within `seconds`. Raises ProviderError as
        `stream` does."""
        try:
            headers = await self._headers() | {"accept": "application/json"}
            with closing(CallDeadline(self._timeouts)) as deadline:
                deadline.end_within(seconds)
                url = self._root() + path if at_root else self.url("", path)
                response = await self._send("GET", url, headers, None, deadline)
                try:
                    body = await _beginning(response, deadline, MAX_ANSWER_BYTES)
                    if not response.is_success:
                        raise status_error(response.status_code, response.headers, body, self._now())
                    return body
                finally:
                    await response.aclose()
        except ProviderError as error:
            raise await self._told(error, None) from None

    async def _headers(self) -> dict[str, str]:
        headers = {"user-agent": "refold", "accept-encoding": "identity"} | dict(self._dialect.headers)
        headers.update((name.lower(), value) for name, value in self._config.headers)
        headers.update((name.lower(), value) for name, value in (await self._credentials.headers()).items())
        key = await self._credentials.key()
        if key is not None and self._config.key_header is not None:
            headers[self._config.key_header.lower()] = key
        elif key is not None:
            headers[self._dialect.key_header] = f"{self._dialect.key_prefix}{key}"
        return headers

    async def _answer(self, request: Request, headers: dict[str, str], body: bytes, deadline: CallDeadline) -> httpx.Response:
        """Send a request to its model; the answer is kept where that was asked for."""
        url, recorder = self.url(request.header.config.model), self._clients.recorder
        if recorder is None:
            return await self._send("POST", url, headers, body, deadline)
        try:
            return recorder.taped(request_sha256(request), await self._send("POST", url, headers, body, deadline))
        except ProviderError as error:
            recorder.unanswered(request_sha256(request), error)
            raise

    async def _send(
        self, method: str, url: str, headers: dict[str, str], body: bytes | None, deadline: CallDeadline
    ) -> httpx.Response:
        settings = self._settings = self._settings or connection_settings(self._config, url)
        await self._clients.client(settings)  # here, because httpx is imported with it
        import httpx

        limits = httpx.Timeout(None, connect=self._timeouts.connect_s, pool=self._timeouts.connect_s)

        def request(client: httpx.AsyncClient) -> httpx.Request:
            return client.build_request(method, url, content=body, headers=headers, timeout=limits)

        try:
            return await deadline.wait(self._clients.send(settings, request))
        except httpx.HTTPError as error:  # nothing of an answer has come
            told = proxy_error(error, settings.route, self._host)
            raise told or connection_error(error, self._host, answered=False) from None

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

        decoder = self._dialect.make_decoder(request.header.config.max_tokens, request.header.config.dialect_options)
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

    async def _told(self, error: ProviderError, name: str | None) -> ProviderError:
        """Give an error as it may be shown. A refused key that was replaced meanwhile is worth another try at once."""
        message, wait = error.message, error.retry_after_ms
        if error.error_kind == "provider.auth" and error.status is not None:
            wait = 0 if await self._credentials.is_renewed() else None
            message = f"{message}; {self._credentials.hint}"
        route = None if self._settings is None else self._settings.route
        if error.status is not None and route is not None and route.proxy is not None:
            message = f"{message}; the request went through the proxy {route.shown}, which may have answered itself"
        request = error.request_id or name
        return ProviderError(
            error.error_kind,
            SECRETS.scrub(message),
            status=error.status,
            retry_after_ms=wait,
            request_id=None if request is None else SECRETS.scrub(request),
            lasting=error.lasting,
        )


def _scrubbed(chunk: FinishChunk) -> FinishChunk:
    """Take secrets out of the provider's own word for an end."""
    return chunk if chunk.raw is None else replace(chunk, raw=SECRETS.scrub(chunk.raw))


async def _beginning(response: httpx.Response, deadline: CallDeadline, limit: int = MAX_ERROR_BYTES) -> bytes:
    """Read the beginning of a body that is no stream; what cannot be read is left out: the status says enough."""
    import httpx

    body = b""
    async with body_pieces(response) as reads:
        with suppress(httpx.HTTPError, ProviderError):
            while len(body) < limit and (data := await deadline.wait(anext(reads, None))) is not None:
                body += data
    return body[:limit]


async def _drain(reads: AsyncGenerator[bytes, None]) -> None:
    import httpx

    with anyio.move_on_after(DRAIN_SECONDS), suppress(httpx.HTTPError):  # the reply is whole: nothing can be lost
        while await anext(reads, None) is not None:
            pass
