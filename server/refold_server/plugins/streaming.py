"""Owns the chain of `llm/stream`: async generators around the adapter, each of which may look at chunks and change them.

The request cannot be changed: what a wrapper hands to `next` is what the live check compares with the log before a byte
leaves. A failure of a wrapper ends the turn, because half of a reply may be on its way already.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import Any, Final, TypeAlias, cast

from refold_protocol.errors import PluginError
from refold_protocol.session.messages import Chunk
from refold_server.plugins.chain import Failure, Limit, Report, failure_of
from refold_server.plugins.frozen import frozen
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
    """The rest of the chain as one wrapper sees it: asked once, its time not the wrapper's, its errors not its fault."""

    def __init__(self, send: Send, limit: Limit) -> None:
        self._send = send
        self._limit = limit
        self.asked = False
        self.raised: BaseException | None = None
        self.last: Chunk | None = None

    def __call__(self, outgoing: Outgoing) -> AsyncIterator[Chunk]:
        if self.asked:
            raise TypeError("next() was called a second time: a request is sent once")
        if not isinstance(outgoing, Outgoing):  # pyright: ignore[reportUnnecessaryIsInstance] - others' code
            raise TypeError(f"next() takes an Outgoing, not {type(outgoing).__name__}")
        self.asked = True
        return self._chunks(outgoing)

    async def _chunks(self, outgoing: Outgoing) -> AsyncGenerator[Chunk, None]:
        try:
            stream = self._send(outgoing)
        except BaseException as error:
            self.raised = error
            raise
        async with aclosing(stream):
            while True:
                try:
                    with self._limit.standing():
                        chunk = await anext(stream, None)
                except BaseException as error:
                    self.raised = error
                    raise
                if chunk is None:
                    return
                self.last = chunk
                yield chunk


async def _wrapped(one: Registered[Any], outgoing: Outgoing, send: Send, report: Report) -> AsyncGenerator[Chunk, None]:
    limit = Limit(one.limit_s)
    inner = _Inner(send, limit)
    stream: Any = None
    try:
        while True:
            chunk: object = _ENDED
            try:
                with limit.running():
                    if stream is None:
                        stream = one.handler(outgoing, inner)
                    chunk = await anext(stream, _ENDED)
                    if chunk is not inner.last and chunk is not _ENDED:
                        chunk = frozen(chunk, cast("type[Chunk]", Chunk))
            except Exception as error:  # a plugin may be anybody's code: its fault is told
                if error is inner.raised or isinstance(error, PluginError):
                    raise
                raise _end(one, failure_of(one, error).message, report) from error
            if limit.over:
                raise _end(one, f"it took longer than {one.limit_s:g} s", report)
            if chunk is _ENDED:
                return
            yield cast("Chunk", chunk)
    finally:
        if stream is not None and hasattr(stream, "aclose"):
            await stream.aclose()


def _end(one: Registered[Any], message: str, report: Report) -> PluginError:
    failure = Failure(one.plugin, one.seam.name, message)
    report(failure)
    return PluginError(failure.sentence)
