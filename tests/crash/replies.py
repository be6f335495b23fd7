"""What each reply promised about the log: the event that it named is there, and says what was asked for."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from refold_protocol.session.events import Event
from refold_protocol.session.session_state import fold_all
from tests.crash.told import Reply

NAMED: Final = {
    "turn/start": "input/accepted",
    "session/inject": "input/accepted",
    "session/rename": "session/title",
    "session/configure": "session/settings",
    "input/withdraw": "input/settled",
    "approval/answer": "approval/decided",
    "session/compact": "user/message",
}
"""Methods whose reply names the seq of an event, and that event's type."""

SAME: Final = {
    "turn/start": {"input": "input", "content": "content", "key": "key"},
    "session/inject": {"input": "input", "content": "content"},
    "session/rename": {"title": "title"},
    "input/withdraw": {"input": "input"},
    "approval/answer": {"approval": "id", "outcome": "outcome", "scope": "scope"},
}
"""What the event must have as the request or its reply had it: the member there, the member of the event's data."""


def broken_reply(reply: Reply, events: Sequence[Event], lines: Sequence[bytes]) -> str | None:
    """Give what the log lacks that the reply promised, None where it lacks nothing."""
    result = reply.result
    match reply.method:
        case "session/open":
            return _opened(result, events)
        case "session/flush":
            return None if result["durable"] < len(lines) else f"the log ends at {len(lines) - 1}"
        case "session/fork":
            return None if result["tail"] < len(lines) else f"the fork ends at {len(lines) - 1}"
        case "turn/wait":
            return None if reply.raw in lines else "no such line is there"
        case "turn/interrupt":
            return _ended(reply.params["turn"], result["reason"], events, lines)
        case _:
            return _named(reply, result, lines)


def _opened(result: Any, events: Sequence[Event]) -> str | None:
    """An open tells where the log ended and which inputs waited there: all of them, in order."""
    if result["tail"] >= len(events):
        return f"the log ends at {len(events) - 1}"
    waited = [one.input for one in fold_all(events[: result["tail"] + 1]).pending]
    listed = [one["input"] for one in result["pendingInputs"]]
    return None if listed == waited else f"{waited} waited"


def _named(reply: Reply, result: Any, lines: Sequence[bytes]) -> str | None:
    seq: int = result["seq"]
    if seq >= len(lines):
        return f"the log ends at {len(lines) - 1}"
    event = json.loads(lines[seq])
    if event["type"] != NAMED[reply.method]:
        return f"event {seq} is a {event['type']}"
    given = {**reply.params, **result}
    for name, member in SAME.get(reply.method, {}).items():
        if name in given and event["data"].get(member) != given[name]:
            return f"event {seq} has another {member}: {event['data'].get(member)!r}"
    return None


def _ended(turn: int, reason: object, events: Sequence[Event], lines: Sequence[bytes]) -> str | None:
    if reason is None:
        return None
    ends: list[Any] = [json.loads(lines[event.seq])["data"] for event in events if event.type == "turn/end"]
    found = [end["reason"] for end in ends if end["turn"] == turn]
    return None if found == [reason] else f"turn {turn} ended {found}"
