"""Other direction of the proof: what happened outside the log, a body sent or a file written, stands in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from refold_protocol.session.events import (
    ApprovalAsked,
    ApprovalDecided,
    Event,
    PermissionSettings,
    RequestSent,
    SessionSettings,
    ToolCall,
)
from tests.crash.child import Ground
from tests.crash.told import Told

UNFINISHED: Final = ".refold-"
"""How the files begin that a writing tool had not put in their place yet when it was killed. They hold no name of a call."""


def unrecorded(ground: Ground, logs: Sequence[Sequence[Event]], told: Told) -> Iterator[str]:
    """Say what the last life did and no log holds or allows. The files that it wrote are taken away."""
    files = sorted((ground.workspace / "out").iterdir())
    for path in files:
        path.unlink()
    if told.gone_now or told.under_way("session/delete"):  # it may have stood in what is gone
        return
    sent = {event.data.sha256 for log in logs for event in log if isinstance(event.data, RequestSent)}
    yield from (f"the body {one} was sent, and no log says so" for one in sorted(told.sent - sent))
    for name in (path.name for path in files if not path.name.startswith(UNFINISHED)):
        called = [log for log in logs if any(isinstance(one.data, ToolCall) and _is_of(one.data, name) for one in log)]
        if not called:
            yield f"{name} was written, and no log has the call"
        elif not any(_allows(log, name) for log in called):
            yield f"{name} was written, and no log allows it"


def _is_of(call: ToolCall, name: str) -> bool:
    return f"/{name}" in call.arguments


def _allows(log: Sequence[Event], name: str) -> bool:
    """Whether a person allowed the call that writes `name`, or the session was in a mode in which nobody is asked."""
    mode, call, asked = "ask", "", ""
    for event in log:
        match event.data:
            case SessionSettings(permissions=PermissionSettings(mode=str(chosen))):
                mode = chosen
            case ToolCall() if _is_of(event.data, name):
                call = event.data.call_id
            case ApprovalAsked() if event.data.call_id == call:
                asked = event.data.id
            case ApprovalDecided(id=decided, outcome="allowed") if decided == asked:
                return True
            case _:
                pass
        if call and mode == "allow":
            return True
    return False
