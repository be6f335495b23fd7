"""Owns the handlers of `turn/*`: start, wait, interrupt. A reply that names a seq or an end is sent after it is durable."""

from __future__ import annotations

import msgspec
from msgspec import Raw

from refold_protocol.rpc.envelope import NULL
from refold_protocol.rpc.errors import WireError, bad_param
from refold_protocol.rpc.params import TurnInterruptParams, TurnStartParams, TurnWaitParams, input_content
from refold_protocol.rpc.results import TurnInterruptResult, TurnStartResult
from refold_protocol.session.events import AbortCause
from refold_protocol.session.messages import Source
from refold_server.sessions.registry import Sessions


class TurnMethods:
    """The `turn/*` requests of one connection. `source` is who its inputs come from."""

    def __init__(self, sessions: Sessions, source: Source) -> None:
        self._sessions = sessions
        self._source = source

    async def start(self, params: TurnStartParams) -> TurnStartResult:
        """turn/start."""
        session = self._sessions.writable(params.session)
        if params.input is not None:
            waiting, turn, seq = session.start_pending(params.input)
            return TurnStartResult(waiting.input, seq, turn)
        content = input_content(params.content or ())
        if not any(block.text.strip() for block in params.content or ()):
            raise WireError(bad_param("turn/start", "$.content", "a prompt needs some text that is not blank"))
        waiting, turn, seq = await session.start(content, self._source)
        return TurnStartResult(waiting.input, seq, turn)

    async def wait(self, params: TurnWaitParams) -> Raw:
        """turn/wait: the `turn/end` event's own line."""
        session = self._sessions.writable(params.session)
        if params.turn is not None:
            event = await session.wait_turn(params.turn)
        else:
            assert params.input is not None  # the params' own check: exactly one of the two is there
            event = await session.wait_input(params.input)
        return Raw(event.line)

    async def interrupt(self, params: TurnInterruptParams) -> TurnInterruptResult:
        """turn/interrupt."""
        session = self._sessions.writable(params.session)
        reason = await session.interrupt(params.turn, AbortCause("user"))
        return TurnInterruptResult(NULL if reason is None else Raw(msgspec.json.encode(reason)))
