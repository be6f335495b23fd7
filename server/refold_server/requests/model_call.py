"""The one call of a model, for steps and for summaries: recorded, flushed, compared with the log where that is due, sent.

What wrappers of `llm/stream` hand on decides only whether it is compared; the provider gets the recorded objects. A refusal
holds whatever a wrapper makes of it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing, contextmanager
from typing import Literal, TypeAlias

import anyio

from refold_protocol.errors import InvariantError, LogBusyError, LogError, PluginError
from refold_protocol.session.events import Draft, RequestSent
from refold_protocol.session.messages import Chunk
from refold_protocol.session.request import Request
from refold_server.plugins.hook_table import HookContext, Outgoing
from refold_server.plugins.session_hooks import SessionHooks
from refold_server.requests.session_log import SessionLog
from refold_server.requests.session_model import EncodedRequest, SessionModel, encode_summary
from refold_storage.pending_writes import same_error

Purpose: TypeAlias = Literal["step", "summary"]


async def ask_model(
    session_log: SessionLog,
    model: SessionModel,
    hooks: SessionHooks,
    place: HookContext,
    request: Request,
    purpose: Purpose,
    attempt: int = 1,
) -> AsyncGenerator[Chunk, None]:
    """Ask once: record the request, make that durable, send it, and give the chunks of the reply, as wrappers made them.

    To be iterated inside `while_durable`. Raises what the provider raises, PluginError, LogError, and InvariantError when
    something else than what is recorded was about to be sent.
    """
    encoded = model.encode_step(request) if purpose == "step" else encode_summary(request)
    await _record(session_log, encoded, purpose, attempt)
    session_log.refuse_stalled()
    outgoing = Outgoing(place, request, encoded.body)
    sending = _Sending(session_log, model, outgoing)
    try:
        async with aclosing(hooks.stream(outgoing, sending.send)) as chunks:
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

    stop = session_log.handle.watch_trouble(stall)
    try:
        with scope:
            yield
    finally:
        stop()
    if stalled:
        raise same_error(stalled[0])


async def _record(session_log: SessionLog, encoded: EncodedRequest, purpose: Purpose, attempt: int) -> RequestSent:
    work = session_log.folds.work
    sent = RequestSent(
        purpose,
        attempt,
        encoded.encoder,
        len(encoded.body),
        encoded.sha256,
        encoded.request_sha256,
        work.turn,
        work.step if purpose == "step" else None,
    )
    session_log.append(Draft(sent))
    await session_log.flush()  # fail closed: what is not durable is not sent
    return sent


class _Sending:
    def __init__(self, session_log: SessionLog, model: SessionModel, outgoing: Outgoing) -> None:
        self.refused: InvariantError | None = None
        self._check = model.live_check
        request_state = session_log.folds.request_state
        self._due = request_state.compaction is not None or self._check.is_due(request_state)
        self._provider = model.models.provider(outgoing.request.header.config.provider)
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
