"""Owns the sending of one recorded request: checked against the log where that is due or anything was touched, then sent.

What wrappers of `llm/stream` hand on decides only whether it is looked at; the adapter gets the recorded objects. A refusal
holds whatever a wrapper makes of it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing, contextmanager

import anyio

from refold_protocol.errors import InvariantError, LogBusyError, LogError, PluginError
from refold_protocol.session.messages import Chunk
from refold_server.loop.instance import Instance
from refold_server.plugins.hook_table import Outgoing
from refold_server.requests.session_log import SessionLog
from refold_storage.pending_writes import same_error


async def replying(instance: Instance, outgoing: Outgoing) -> AsyncGenerator[Chunk, None]:
    """Send a request and give the chunks of its reply, as wrappers made them.

    Raises what the provider raises, PluginError, and InvariantError when something else was about to be sent.
    """
    sending = _Sending(instance, outgoing)
    try:
        async with aclosing(instance.hooks.stream(outgoing, sending.send)) as chunks:
            async for chunk in chunks:
                if sending.refused is not None:
                    break
                yield chunk
    except PluginError:
        if sending.refused is None:
            raise
    if sending.refused is not None:
        raise sending.refused


@contextmanager
def while_durable(session_log: SessionLog) -> Generator[None]:
    """Run a block until a commit fails: what a provider says from then on could not be kept. Raises that LogError."""
    scope, stalled = anyio.CancelScope(), list[LogError]()

    def stall(trouble: LogError | None) -> None:
        if trouble is not None and not isinstance(trouble, LogBusyError):  # one that is late is waited for
            stalled.append(trouble)
            scope.cancel()

    session_log.refuse_stalled()
    stop = session_log.handle.watch_trouble(stall)
    try:
        with scope:
            yield
    finally:
        stop()
    if stalled:
        raise same_error(stalled[0])


class _Sending:
    def __init__(self, instance: Instance, outgoing: Outgoing) -> None:
        self.refused: InvariantError | None = None
        self._check = instance.live_check
        request_state = instance.session_log.folds.request_state
        self._due = request_state.compaction is not None or instance.live_check.is_due(request_state)
        self._provider = instance.host.provider(outgoing.request.header.config.provider)
        self._request, self._body = outgoing.request, outgoing.body

    def send(self, given: Outgoing) -> AsyncGenerator[Chunk, None]:
        """Give the provider's reply. Its first chunk raises InvariantError when `given` is not what the log says."""
        if self._due or given.request is not self._request or given.body is not self._body:
            return self._checked(given)
        return self._provider.stream(self._request, self._body)

    async def _checked(self, given: Outgoing) -> AsyncGenerator[Chunk, None]:
        try:
            await self._check.check(given.request, given.body)
        except InvariantError as error:  # a wrapper may swallow it: then the turn ends by it all the same
            self.refused = error
            raise
        async with aclosing(self._provider.stream(self._request, self._body)) as chunks:
            async for chunk in chunks:
                yield chunk
