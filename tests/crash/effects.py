"""Owns the other direction of the proof: what happened outside the log, a body sent or a file written, stands in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from refold_protocol.session.events import ApprovalAsked, ApprovalDecided, Event, RequestSent, ToolCall
from tests.crash.child import Ground
from tests.crash.told import Told

UNFINISHED: Final = ".refold-"
"""How the files begin that a writing tool had not put in their place yet when it was killed. They hold no name of a call."""


def unrecorded(ground: Ground, events: Sequence[Event], told: Told) -> Iterator[str]:
    """Say what the last life did and no log holds; `events` are those of all sessions. The files are taken away."""
    files = sorted((ground.workspace / "out").iterdir())
    for path in files:
        path.unlink()
    if told.gone_now or told.under_way("session/delete"):  # it may have stood in what is gone
        return
    sent = {event.data.sha256 for event in events if isinstance(event.data, RequestSent)}
    yield from (f"the body {one} was sent, and no log says so" for one in sorted(told.sent - sent))
    names = {path.name for path in files if not path.name.startswith(UNFINISHED)}
    for name in sorted(names):
        if not any(isinstance(event.data, ToolCall) and name in event.data.arguments for event in events):
            yield f"{name} was written, and no log has the call"
    allowed = {event.data.id for event in events if isinstance(event.data, ApprovalDecided) and event.data.outcome == "allowed"}
    for event in events:
        if isinstance(event.data, ApprovalAsked) and event.data.id not in allowed:
            wrongly = [name for name in names if name in event.data.subject.text]
            yield from (f"{name} was written, and no log allows it" for name in wrongly)
