"""Types of a question: what a person is asked about a call that changes something."""

# No `from __future__ import annotations`: NotRequired inside a string is not seen at run time, where the test looks.

from typing import Literal, NotRequired, TypedDict


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
