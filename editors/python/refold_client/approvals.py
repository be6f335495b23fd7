"""Owns the client's side of a question: what a person is asked about a call that changes something, and who answers.

A client without a handler is asked too, and says that it does not answer: the daemon denies the call then, and says so to the
model. A question that was settled elsewhere cancels the handler.
"""

# No `from __future__ import annotations`: NotRequired inside a string is not seen at run time, where the test looks.

from collections.abc import Awaitable, Callable
from typing import Any, Literal, NotRequired, TypeAlias, TypedDict

from refold_client.errors import RpcError


class Subject(TypedDict):
    """Exactly what would happen: a command, a diff, a path, or another text."""

    kind: str
    text: str


class Option(TypedDict):
    """One thing that can be answered; `label` is for a person."""

    id: str
    kind: Literal["allowOnce", "allowSession", "deny"]
    label: str


class Approval(TypedDict):
    """A question. `approval` is its durable id; without an answer within `deadlineMs` milliseconds it is `default`."""

    session: str
    approval: str
    turn: int
    callId: str
    tool: str
    subject: Subject
    options: list[Option]
    default: str
    deadlineMs: NotRequired[int]


OnApproval: TypeAlias = Callable[[Approval], Awaitable[str | None]]
"""Answers a question with the id of an option; None is the default."""


class ApprovalHandler:
    """Whoever answers the questions of one connection, if anybody does."""

    def __init__(self) -> None:
        self.answers: OnApproval | None = None

    async def __call__(self, question: Any) -> Any:
        """Give the reply to `approval/request`. Raises RpcError (method not found) where nobody answers questions."""
        if self.answers is None:
            raise RpcError({"code": -32601, "message": "this client does not answer questions (on_approval)"})
        chosen = await self.answers(question)
        return {"option": question["default"] if chosen is None else chosen}
