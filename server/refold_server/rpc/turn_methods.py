"""Handlers of `turn/*`: start, wait, interrupt. A reply that names a seq or an end is sent after it is durable."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Raw, Struct

from refold_protocol.ids import InputId, SessionId
from refold_protocol.rpc.envelope import NULL
from refold_protocol.session.events import AbortCause
from refold_protocol.session.messages import Source
from refold_server.rpc.dispatch import Handler, refuse_blank
from refold_server.rpc.method import (
    Counting,
    ProgressToken,
    TextInput,
    input_content,
    request_row,
)
from refold_server.rpc.progress import Progress
from refold_server.sessions.session import Session
from refold_server.sessions.session_registry import Sessions


class TurnStartResult(Struct, frozen=True, gc=False, omit_defaults=True):
    """`turn/start`: the input is durable at `seq`; `turn` is there when it started one."""

    input: InputId
    seq: int
    turn: int | None = None


class TurnInterruptResult(Struct, frozen=True, gc=False):
    """`turn/interrupt`: the `reason` object of the turn's end as recorded; `null` on an idle session."""

    reason: Raw


class TurnStartParams(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel", forbid_unknown_fields=True):
    """`turn/start`: with new `content`, or with an `input` that waits since an earlier instance. While a turn runs, content is
    refused, queued behind it, or steers it. `work_done_token` asks for `$/progress` of the turn. A `key` that the session has
    seen gives the first reply again and starts nothing, so a request whose reply was lost can be sent once more."""

    session: SessionId
    content: Annotated[tuple[TextInput, ...], Meta(min_length=1)] | None = None
    input: InputId | None = None
    if_running: Literal["error", "queue", "steer"] = "error"
    key: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    work_done_token: ProgressToken | None = None

    def __post_init__(self) -> None:
        if (self.content is None) == (self.input is None):
            raise ValueError("give either `content` or `input`")
        if self.input is not None and self.if_running != "error":
            raise ValueError("an `input` that waits is started on an idle session; ifRunning is for new content")
        if self.input is not None and self.key is not None:
            raise ValueError("an `input` that waits has its own key; `key` is for new content")


class TurnWaitParams(Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """`turn/wait`: for the end of a turn, or of the turn that an input starts. Answered with an error as soon as that can no
    longer come: `input.unknown` when the input was withdrawn or has joined a turn, `input.pending` when it waits since an
    earlier process, `session.readOnly` when the session was closed or deleted while the input still waited."""

    session: SessionId
    turn: Counting | None = None
    input: InputId | None = None

    def __post_init__(self) -> None:
        if (self.turn is None) == (self.input is None):
            raise ValueError("give either `turn` or `input`")


class TurnInterruptParams(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel", forbid_unknown_fields=True):
    """`turn/interrupt`: with `withdraw_queued`, what waits behind the turn is taken back as well. It does not wait behind
    a long queue of other requests, so send it once the turn is known to run."""

    session: SessionId
    turn: Counting
    withdraw_queued: bool = False


class TurnMethods:
    """The `turn/*` requests of one connection. `source` is who its inputs come from."""

    def __init__(self, sessions: Sessions, source: Source, progress: Progress) -> None:
        self._sessions = sessions
        self._source = source
        self._progress = progress

    def handlers(self) -> Mapping[str, Handler]:
        """Give the handlers by method name."""
        return {
            "turn/start": self.start,
            "turn/wait": self.wait,
            "turn/interrupt": self.interrupt,
        }

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


METHODS: Final = (
    request_row("turn/start", TurnStartParams, TurnStartResult, "Accept a prompt; answered once on disk."),
    request_row("turn/interrupt", TurnInterruptParams, TurnInterruptResult, "Stop a turn; idempotent."),
    request_row("turn/wait", TurnWaitParams, Raw, "Wait for a turn's end; answers the `turn/end` event itself."),
)
"""The methods of this family."""
