"""Params and the results of the methods by which a person is asked whether a call may run, and answers.

Shapes, and the two lists that belong to them: what can be answered, and what no answer means. An answer that does not fit
is no error here: whoever asked takes it for the default.

Asking a connection's client whether calls may run: `approval/request` for each open question, `approval/answer`.

A question is asked once it is durable; the first valid answer wins, wherever it comes from. What the client makes of a
request that is not an answer (an error, an option that was not offered) is the default: it denies. Keeps no question of its
own: what is open is asked of the sessions.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec import Raw, Struct

from refold_protocol.errors import RefoldError
from refold_protocol.ids import ApprovalId, CallId, SessionId
from refold_protocol.session.events import ApprovalSubject
from refold_protocol.session.messages import Source
from refold_server.loop.approvals import GONE, Outcome, Question, Scope
from refold_server.rpc.client_requests import PeerError, PeerGoneError
from refold_server.rpc.dispatch import Handler
from refold_server.rpc.method import Method, SeqResult, decode_result, request_row
from refold_server.sessions.session import Session
from refold_server.sessions.session_registry import Sessions

OptionKind: TypeAlias = Literal["allowOnce", "allowSession", "deny"]


class ApprovalOption(Struct, frozen=True, gc=False):
    """One thing that can be answered: `id` is what the reply names, `label` is for a person, in English."""

    id: str
    kind: OptionKind
    label: str


class ApprovalRequestParams(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """`approval/request`: a call waits until somebody says whether it may run. `approval` is its durable id, the same when the
    question is asked again. `subject` is exactly what would happen. A reply that names none of the `options`, an error, or
    none within `deadline_ms` milliseconds is `default`. Cancelled when the question is settled elsewhere."""

    session: SessionId
    approval: ApprovalId
    turn: int
    call_id: CallId
    tool: str
    subject: ApprovalSubject
    options: tuple[ApprovalOption, ...]
    default: str
    deadline_ms: int | None = None


class ApprovalRequestResult(Struct, frozen=True, gc=False):
    """`approval/request`: the id of the option that was chosen."""

    option: str


class ApprovalAnswerParams(Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """`approval/answer`: settle an open question without being asked. With the scope `session`, further calls of that tool run
    without a question as long as the session lives."""

    session: SessionId
    approval: ApprovalId
    outcome: Outcome
    scope: Scope = "once"

    def __post_init__(self) -> None:
        if self.outcome == "denied" and self.scope != "once":
            raise ValueError("a call is denied once; the permission mode `deny` is for all of them")


DENY: Final = "deny"
"""The option that no answer means."""

_ANSWERS: Final[dict[str, tuple[Outcome, Scope]]] = {
    "once": ("allowed", "once"),
    "session": ("allowed", "session"),
    DENY: ("denied", "once"),
}


def approval_options(tool: str) -> tuple[ApprovalOption, ...]:
    """Give what can be answered to a question about a call of `tool`, the narrowest permission first."""
    return (
        ApprovalOption("once", "allowOnce", "Allow this call"),
        ApprovalOption("session", "allowSession", f"Allow {tool} for this session"),
        ApprovalOption(DENY, "deny", "Deny"),
    )


def answer_of(option: str) -> tuple[Outcome, Scope] | None:
    """Give what choosing an option means; None for one that was not offered."""
    return _ANSWERS.get(option)


Ask: TypeAlias = Callable[[str, object], Awaitable[Raw]]
"""Sends a request to the client and gives its result; cancelling it cancels it there. Raises PeerError, PeerGoneError."""


logger = logging.getLogger(__name__)


class ApprovalRequests:
    """The questions that one connection is asked. `source` is who its answers come from; `watch` each session that it
    opens for writing."""

    def __init__(self, ask: Ask, group: asyncio.TaskGroup, source: Source) -> None:
        self._ask = ask
        self._group = group
        self._source = source
        self._asking: dict[ApprovalId, asyncio.Task[None]] = {}
        self._left = False

    def watch(self, session: Session) -> None:
        """Ask the questions of a session from now on, as long as it is open."""

        def asked(question: Question) -> None:
            self._begin(session, question)

        session.instance.approvals.watch(asked, lambda question: self._stop(question.id))
        if self._left:
            session.instance.approvals.deny_all(GONE)

    def ask_again(self, session: Session) -> None:
        """Ask what is open in a session once more: whoever shows it may have lost the question. The earlier requests are
        cancelled."""
        for question in session.instance.approvals.open:
            self._begin(session, question)

    def leave(self, sessions: Iterable[Session]) -> None:
        """Deny what is open, and at once what is asked later: the client is gone, and turns may finish their step."""
        self._left = True
        for session in sessions:
            try:
                session.instance.approvals.deny_all(GONE)
            except RefoldError as error:  # its log takes nothing more: nothing will run there
                logger.warning("%s: %s", error.error_kind, error.message)

    def _begin(self, session: Session, question: Question) -> None:
        self._stop(question.id)
        task = self._group.create_task(self._settle(session, question))
        self._asking[question.id] = task
        task.add_done_callback(lambda _: self._forget(question.id, task))

    def _stop(self, approval: ApprovalId) -> None:
        task = self._asking.pop(approval, None)
        if task is not None:
            task.cancel()  # unless it is the one that settles the question: its request is answered then

    def _forget(self, approval: ApprovalId, task: asyncio.Task[None]) -> None:
        if self._asking.get(approval) is task:
            del self._asking[approval]

    async def _settle(self, session: Session, question: Question) -> None:
        try:
            outcome, scope = await self._answer(session.id, question)
        except PeerGoneError:  # what becomes of the question is decided by the connection's end
            return
        self._asking.pop(question.id, None)
        try:
            session.instance.approvals.answer(question.id, outcome, scope, self._source)
        except RefoldError as error:  # settled meanwhile, or its log takes nothing more: nobody is waiting for this answer
            logger.info("%s: %s", error.error_kind, error.message)

    async def _answer(self, session: SessionId, question: Question) -> tuple[Outcome, Scope]:
        """Ask once and give what the client says, or the default. Raises PeerGoneError."""
        try:
            result: ApprovalRequestResult = decode_result(
                APPROVAL_REQUEST, await self._ask(APPROVAL_REQUEST.name, _params(session, question))
            )
            chosen = answer_of(result.option)
            fault = f"there is no option {result.option!r}"
        except PeerError as error:
            chosen, fault = None, str(error)
        except (msgspec.DecodeError, RecursionError) as error:
            chosen, fault = None, str(error)
        if chosen is None:
            logger.warning("a call of %s is denied, since the client gave no answer: %s", question.call.name, fault)
        return chosen or ("denied", "once")


class ApprovalMethods:
    """`approval/answer` of one connection."""

    def __init__(self, sessions: Sessions, source: Source) -> None:
        self._sessions = sessions
        self._source = source

    def handlers(self) -> Mapping[str, Handler]:
        """Give the handlers by method name."""
        return {
            "approval/answer": self.answer,
        }

    async def answer(self, params: ApprovalAnswerParams) -> SeqResult:
        """approval/answer."""
        session = self._sessions.writable(params.session)
        seq = session.instance.approvals.answer(params.approval, params.outcome, params.scope, self._source)
        await session.session_log.flush()
        return SeqResult(seq)


def _params(session: SessionId, question: Question) -> ApprovalRequestParams:
    call = question.call
    left = max(0.0, question.deadline - asyncio.get_running_loop().time())
    return ApprovalRequestParams(
        session,
        question.id,
        call.place.turn,
        call.id,
        call.name,
        question.subject,
        approval_options(call.name),
        DENY,
        round(left * 1000),
    )


APPROVAL_REQUEST: Final = Method(
    "approval/request",
    "to-client",
    "request",
    ApprovalRequestParams,
    ApprovalRequestResult,
    "Ask a person whether a call may run.",
)

METHODS: Final = (
    request_row("approval/answer", ApprovalAnswerParams, SeqResult, "Say whether a call may run."),
    APPROVAL_REQUEST,
)
"""The methods of this family."""
