"""Owns the params and the results of the methods by which a person is asked whether a call may run, and answers.

Shapes, and the two lists that belong to them: what can be answered, and what no answer means. An answer that does not fit
is no error here: whoever asked takes it for the default.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from msgspec import Struct

from refold_protocol.ids import ApprovalId, CallId, SessionId
from refold_protocol.session.events import ApprovalSubject

Outcome: TypeAlias = Literal["allowed", "denied"]
Scope: TypeAlias = Literal["once", "session"]
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
