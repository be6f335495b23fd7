"""Owns the handlers of `turn/*`: start, wait, interrupt. A reply that names a seq or an end is sent after it is durable."""

from __future__ import annotations

import msgspec
from msgspec import Raw

from refold_protocol.rpc.envelope import NULL
from refold_protocol.rpc.params import (
    ProgressCancelParams,
    TurnInterruptParams,
    TurnStartParams,
    TurnWaitParams,
    input_content,
)
from refold_protocol.rpc.results import TurnInterruptResult, TurnStartResult
from refold_protocol.session.events import AbortCause
from refold_protocol.session.messages import Source
from refold_server.rpc.dispatch import refuse_blank
from refold_server.rpc.progress import Progress
from refold_server.sessions.session import Session
from refold_server.sessions.session_registry import Sessions


class TurnMethods:
    """The `turn/*` requests of one connection. `source` is who its inputs come from."""

    def __init__(self, sessions: Sessions, source: Source, progress: Progress) -> None:
        self._sessions = sessions
        self._source = source
        self._progress = progress

    async def start(self, params: TurnStartParams) -> TurnStartResult:
        """turn/start."""
        session = self._sessions.writable(params.session)
        reserved = None if params.work_done_token is None else self._progress.reserve(params.work_done_token)
        try:
            result = await self._start(session, params)
        except BaseException:
            if reserved is not None:
                self._progress.release(reserved)
            raise
        if reserved is not None:
            self._progress.follow(reserved, session, result.input, result.turn)
        return result

    async def cancel(self, params: ProgressCancelParams) -> None:
        """window/workDoneProgress/cancel: a person pressed the button on the turn's progress."""
        await self._progress.cancel(params.token)

    async def _start(self, session: Session, params: TurnStartParams) -> TurnStartResult:
        if params.input is not None:
            waiting, turn, seq = await session.start_pending(params.input)
            return TurnStartResult(waiting.input, seq, turn)
        refuse_blank("turn/start", params.content or ())
        content = input_content(params.content or ())
        earlier = None if params.key is None else await session.accepted_before(params.key, content)
        if earlier is not None:
            return TurnStartResult(earlier.input, earlier.seq, earlier.turn)
        if params.if_running == "error":
            waiting, turn, seq = await session.start(content, self._source, params.key)
            return TurnStartResult(waiting.input, seq, turn)
        accepted = await session.start_or_wait(content, self._source, params.if_running, params.key)
        return TurnStartResult(accepted.input, accepted.seq, accepted.turn)

    async def wait(self, params: TurnWaitParams) -> Raw:
        """turn/wait: the `turn/end` event's own line."""
        session = self._sessions.writable(params.session)
        if params.turn is not None:
            event = await session.turns.wait(params.turn)
        else:
            assert params.input is not None  # the params' own check: exactly one of the two is there
            event = await session.turns.wait_input(params.input)
        return Raw(event.line)

    async def interrupt(self, params: TurnInterruptParams) -> TurnInterruptResult:
        """turn/interrupt."""
        session = self._sessions.writable(params.session)
        reason = await session.interrupt(params.turn, AbortCause("user"), withdraw_queued=params.withdraw_queued)
        return TurnInterruptResult(NULL if reason is None else Raw(msgspec.json.encode(reason)))
