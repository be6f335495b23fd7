"""Progress of turns and compactions (`$/progress`), and the trace of a connection (`$/setTrace`, `$/logTrace`).

Progress is told by a token, the client's or one of ours: begin, a report for each step, tool and question, the end. It is a
projection of the log like any other: told from events, after they were accepted. A token names one turn at a time, or one
compaction that was asked for. The trace has one line for each request that was answered, with the time it took; with `verbose`,
the params as well. Off until asked for, and then it costs one comparison a request.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import anyio
import msgspec

from refold_protocol.ids import InputId
from refold_protocol.rpc.wire_errors import WireError, bad_param
from refold_protocol.session.events import (
    AbortCause,
    ApprovalAsked,
    Event,
    InputSettled,
    LlmRetry,
    RequestSent,
    SteeringMessage,
    StepStart,
    ToolCall,
    TurnEnd,
    TurnStart,
)
from refold_server.rpc.dispatch import Handler
from refold_server.rpc.method import ProgressCancelParams, ProgressToken, SetTraceParams, notification_row
from refold_server.rpc.notices import LogTraceNotice, ProgressNotice, WorkDone
from refold_server.sessions.session import Session

Notify = Callable[[str, object], None]
"""Sends a notification."""


class _TurnProgress:
    def __init__(self, session: Session, given: InputId) -> None:
        self.session = session
        self.input = given
        self.turn: int | None = None
        self.stop: Callable[[], object] = lambda: None


class Progress:
    """The tokens in use on one connection."""

    def __init__(self, notify: Notify) -> None:
        self._notify = notify
        self._tokens: dict[ProgressToken, _TurnProgress | anyio.CancelScope | None] = {}

    def reserve(self, token: ProgressToken, method: str = "turn/start") -> ProgressToken:
        """Take a token into use for a request. Raises WireError (−32602) for one that is."""
        if token in self._tokens:
            raise WireError(bad_param(method, "$.workDoneToken", f"{token!r} names the progress of another turn"))
        self._tokens[token] = None
        return token

    def release(self, token: ProgressToken) -> None:
        """Give a token back."""
        self._tokens.pop(token, None)

    def follow(
        self, token: ProgressToken, session: Session, given: InputId, turn: int | None, *, title: str = "refold"
    ) -> None:
        """Tell the progress of the turn that `given` starts or joins, from where it is now; `turn` is the one that it was
        accepted for, None while it is queued."""
        session_log = session.session_log
        followed = self._tokens[token] = _TurnProgress(session, given)
        waits = any(one.input == given for one in session_log.folds.pending)
        followed.turn = session_log.turn_of_input(given) or (None if waits else turn)
        if session.closed or (not waits and (followed.turn is None or session_log.turn_end(followed.turn) is not None)):
            self.release(token)  # it joined and ended already
            return
        self._tell(token, WorkDone("begin", title=title, message="turn", cancellable=True))

        def look() -> None:
            turn = followed.turn
            if turn is not None and turn != session.turns.running and session_log.turn_end(turn) is None:
                self._end(token, followed, "failed")  # its end could not be recorded
            elif session.closed:  # what waits begins no turn here any more
                self._end(token, followed, "closed")

        unobserve, unwatch = session_log.handle.observe(partial(self._seen, token, followed)), session.turns.watch(look)
        followed.stop = lambda: (unobserve(), unwatch())

    @contextmanager
    def task(self, token: ProgressToken, method: str, session: Session) -> Generator[anyio.CancelScope]:
        """Tell the progress of a compaction of `session` while the block runs. Raises WireError for a token in use."""
        self.reserve(token, method)
        self._tokens[token] = scope = anyio.CancelScope()
        self._tell(token, WorkDone("begin", title="refold", message="compaction", cancellable=True))

        def seen(events: Sequence[Event]) -> None:
            for event in events:
                if isinstance(event.data, RequestSent) and event.data.purpose == "summary":
                    self._tell(token, WorkDone("report", message=f"attempt {event.data.attempt}: waiting for the summary"))

        stop, word = session.session_log.handle.observe(seen), "failed"
        try:
            with scope:
                yield scope
                word = "completed"
            word = "aborted" if scope.cancelled_caught else word
        except anyio.get_cancelled_exc_class():  # by the request's id
            word = "aborted"
            raise
        finally:
            stop()
            self.release(token)
            self._tell(token, WorkDone("end", message=word))

    async def cancel(self, params: ProgressCancelParams) -> None:
        """window/workDoneProgress/cancel: stop the turn or the compaction that a token names. An unknown token is nothing, as
        in LSP."""
        followed = self._tokens.get(params.token)
        if isinstance(followed, anyio.CancelScope):
            followed.cancel()
        elif followed is not None and followed.turn is not None:
            await followed.session.interrupt(followed.turn, AbortCause("user"))

    def _seen(self, token: ProgressToken, followed: _TurnProgress, events: Sequence[Event]) -> None:
        for event in events:
            match event.data:
                case TurnStart(turn=turn, trigger=trigger) if trigger.input == followed.input:
                    followed.turn = turn
                case SteeringMessage(turn=turn, input=given) if given == followed.input:
                    followed.turn = turn
                case StepStart(turn=turn, step=step) if turn == followed.turn:
                    self._tell(token, WorkDone("report", message=f"step {step}: waiting for the model"))
                case LlmRetry(turn=turn, step=step, attempt=failed, code=code, delay_ms=wait) if turn == followed.turn:
                    message = f"step {step}: {code}; attempt {failed + 1} in {wait / 1000:.1f} s"
                    self._tell(token, WorkDone("report", message=message))
                case RequestSent(purpose="summary", turn=int(turn)) if turn == followed.turn:
                    self._tell(token, WorkDone("report", message="making room: waiting for a summary"))
                case ToolCall(turn=turn, step=step, name=name) if turn == followed.turn:
                    self._tell(token, WorkDone("report", message=f"step {step}: {name}"))
                case ApprovalAsked(tool=name) if followed.turn == followed.session.session_log.folds.work.turn:
                    self._tell(token, WorkDone("report", message=f"{name} waits for permission"))
                case TurnEnd(turn=turn, reason=reason) if turn == followed.turn:
                    self._end(token, followed, reason.kind)
                    return
                case InputSettled(input=given, how=how) if given == followed.input and followed.turn is None:
                    self._end(token, followed, how)
                    return
                case _:
                    pass

    def _end(self, token: ProgressToken, followed: _TurnProgress, message: str) -> None:
        followed.stop()
        self.release(token)
        self._tell(token, WorkDone("end", message=message))

    def _tell(self, token: ProgressToken, value: WorkDone) -> None:
        self._notify("$/progress", ProgressNotice(token, value))


class Trace:
    """The trace of one connection. `level` is `off`, `messages` or `verbose`."""

    def __init__(self, notify: Notify) -> None:
        self.level = "off"
        self._notify = notify

    async def set(self, params: SetTraceParams) -> None:
        """$/setTrace."""
        self.level = params.value

    def traced(self, handlers: Mapping[str, Handler]) -> dict[str, Handler]:
        """Give the same handlers, each telling of itself."""
        return {name: self._traced(name, handler) for name, handler in handlers.items()}

    def _traced(self, name: str, handler: Handler) -> Handler:
        async def handle(params: Any) -> object:
            if self.level == "off":
                return await handler(params)
            began, outcome = time.perf_counter(), "failed"
            try:
                result = await handler(params)
                outcome = "answered"
                return result
            finally:
                self._tell(f"{name}: {outcome} after {(time.perf_counter() - began) * 1000:.1f} ms", params)

        return handle

    def _tell(self, message: str, params: Any) -> None:
        verbose = msgspec.json.encode(params).decode() if self.level == "verbose" else None
        self._notify("$/logTrace", LogTraceNotice(message, verbose))


METHODS: Final = (
    notification_row("window/workDoneProgress/cancel", "to-daemon", ProgressCancelParams, "Interrupt a turn by its token."),
    notification_row("$/setTrace", "to-daemon", SetTraceParams, "How much to tell of what the daemon does."),
)
"""The methods of this family."""
