"""Owns the chain of `llm/stream`: async generators around the adapter, each of which may look at chunks and change them.

The request cannot be changed: what a wrapper hands to `next` is what the live check compares with the log before a byte
leaves. A failure of a wrapper ends the turn, because half of a reply may be on its way already.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from inspect import iscoroutine
from typing import Any, Final, TypeAlias, cast

import anyio.lowlevel

from refold_protocol.errors import PluginError
from refold_protocol.session.messages import Chunk, FinishChunk
from refold_protocol.session.request import Request
from refold_server.plugins.chain import Failure, Report, attempt, failure_of, late
from refold_server.plugins.frozen import frozen_chunk
from refold_server.plugins.limit import Limit
from refold_server.plugins.payloads import Outgoing
from refold_server.plugins.registry import Registered

Send: TypeAlias = Callable[[Outgoing], AsyncGenerator[Chunk, None]]
"""The rest of the chain: sends what it is given and gives the chunks of the reply."""


def streaming(
    handlers: Sequence[Registered[Any]], outgoing: Outgoing, send: Send, report: Report
) -> AsyncGenerator[Chunk, None]:
    """Give the chunks of the reply to `outgoing`. Raises what `send` raises, and PluginError for a wrapper that fails."""
    if not handlers:
        return send(outgoing)
    first, *later = handlers
    return _wrapped(first, outgoing, lambda given: streaming(later, given, send, report), report)


_ENDED: Final = object()


class _Inner:
    """The rest of the chain as one wrapper sees it: its method `chunks` is what the wrapper knows as `next`. Asked once; its
    time is not the wrapper's, its errors are not the wrapper's fault."""

    def __init__(self, send: Send, limit: Limit) -> None:
        self._send = send
        self._limit = limit
        self._stream: AsyncGenerator[Chunk, None] | None = None
        self._last: Chunk | None = None
        self.raised: list[Exception] = []
        self.finished = False

    @property
    def asked(self) -> bool:
        """Whether the request went on its way."""
        return self._stream is not None

    def chunks(self, outgoing: Outgoing) -> AsyncIterator[Chunk]:
        """Send, and give the chunks of the reply. Raises TypeError when it is called again, or with something else."""
        if self._stream is not None:
            raise TypeError("next() was called a second time: a request is sent once")
        if type(outgoing) is not Outgoing:  # nor one of its own making that shows the check one thing and the adapter another
            raise TypeError(f"next() takes an Outgoing, not {type(outgoing).__name__}")
        request, body = cast("tuple[object, object]", (outgoing.request, outgoing.body))
        if not isinstance(request, Request) or not isinstance(body, bytes):
            raise TypeError("next() takes a request and its bytes")
        self._stream = self._chunks(outgoing)
        return self._stream

    def gave(self, chunk: object) -> bool:
        """Tell whether a chunk is the last one of the reply, and has not been passed on before."""
        last, self._last = self._last, None
        return last is not None and chunk is last

    async def close(self) -> None:
        """Stop what the wrapper did not read to its end."""
        if self._stream is not None:
            await self._stream.aclose()

    async def _chunks(self, outgoing: Outgoing) -> AsyncGenerator[Chunk, None]:
        try:
            async with aclosing(self._send(outgoing)) as stream:
                while True:
                    with self._limit.standing():
                        chunk = await anext(stream, None)
                    if chunk is None:
                        return
                    self.finished = self.finished or type(chunk) is FinishChunk
                    self._last = chunk
                    yield chunk
        except Exception as error:
            self.raised.append(error)
            raise


class _Wrapper:
    """One wrapper at work on one reply."""

    def __init__(self, one: Registered[Any], outgoing: Outgoing, inner: _Inner, limit: Limit) -> None:
        self._one = one
        self._outgoing = outgoing
        self._inner = inner
        self._limit = limit
        self._stream: Any = None
        self._finished = False
        self.made = False
        """Whether the last chunk is the wrapper's own, and not one of the rest's that it passed on."""

    async def next(self) -> Chunk | Failure | None:
        """Give the next chunk, None at the end, or how the wrapper failed. Raises what it let through from the rest."""
        chunk = await attempt(self._one, self._limit, self._advance, self._accept, self._inner.raised)
        if isinstance(chunk, Failure):
            return chunk
        if self._limit.is_up:
            return late(self._one)
        if chunk is not _ENDED:
            self._finished = self._finished or type(chunk) is FinishChunk
            return cast("Chunk", chunk)
        if not self._finished and (self._inner.finished or not self._inner.asked):
            return self._failure("its reply ended without saying that it is complete")
        return None

    async def close(self) -> Failure | None:
        """Let the wrapper clean up, within its time; give how it failed at that."""
        closed = await attempt(self._one, self._limit, self._aclose, lambda _: None, self._inner.raised)
        return closed if isinstance(closed, Failure) else None

    async def _advance(self) -> object:
        if self._stream is None:
            self._stream = self._one.handler(self._outgoing, self._inner.chunks)
            if not hasattr(self._stream, "__anext__"):
                raise TypeError(f"its handler is no async generator: it gave {type(self._stream).__name__}")
        return await anext(self._stream, _ENDED)

    def _accept(self, chunk: object) -> object:
        self.made = chunk is not _ENDED and not self._inner.gave(chunk)
        return frozen_chunk(chunk) if self.made else chunk

    async def _aclose(self) -> None:
        if iscoroutine(self._stream):
            self._stream.close()
        elif hasattr(self._stream, "aclose"):
            await self._stream.aclose()

    def _failure(self, message: str) -> Failure:
        return Failure(self._one.plugin, self._one.seam.name, message)


async def _wrapped(one: Registered[Any], outgoing: Outgoing, send: Send, report: Report) -> AsyncGenerator[Chunk, None]:
    limit = Limit(one.limit_s)
    inner = _Inner(send, limit)
    wrapper = _Wrapper(one, outgoing, inner, limit)
    failed = False
    try:
        while True:
            chunk = await wrapper.next()
            if isinstance(chunk, Failure):
                failed = True
                report(chunk)
                raise PluginError(chunk.sentence)
            if chunk is None:
                return
            if wrapper.made:  # one that waits for nothing must not keep the loop to itself
                await anyio.lowlevel.checkpoint()
            yield chunk
    finally:
        one.tally.add(limit.spent, failed=failed)
        await _end(one, wrapper, inner, report)


async def _end(one: Registered[Any], wrapper: _Wrapper, inner: _Inner, report: Report) -> None:
    try:
        failure = await wrapper.close()
        if failure is not None:
            report(failure)
    finally:
        try:
            await inner.close()
        except RuntimeError as error:  # a task of the wrapper reads it still
            report(failure_of(one, error))
