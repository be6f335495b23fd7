"""Owns what the loop records for calls that have no answer when their turn is stopped: no closed turn leaves one open.

A call that ran may have had its effect, so its outcome is unknown; one that did not start says so, and is safe to repeat.
After a crash the closers do the same from the log alone (`session/closers.py`).
"""

from __future__ import annotations

from refold_protocol.session.events import Draft, ToolCall, ToolErrorInfo, ToolResult
from refold_protocol.session.grammar import OpenCall
from refold_protocol.session.messages import text_content

_UNASKED = "This call did not run: the turn was stopped before anybody allowed it."
_UNSTARTED = "This call did not run: the turn was stopped first."
_UNKNOWN = "The turn was stopped while this tool ran. Check what it did before you try again."
_UNREAD = "The turn was stopped while this tool ran, so there is no answer. It changes nothing; ask again if you need it."


def unanswered(turn: int, step: int, call: OpenCall, *, read_only: bool) -> list[Draft]:
    """Give the drafts that answer a call of a stopped turn: its result, behind the `tool/call` where there is none yet."""
    if call.started is None:
        return [
            Draft(ToolCall(turn, step, call.id, call.name, call.arguments)),
            _result(turn, step, call, _UNSTARTED, "ABORTED_BEFORE_DISPATCH"),
        ]
    if call.approval not in (None, "allowed"):
        return [_result(turn, step, call, _UNASKED, "ABORTED_BEFORE_DISPATCH")]
    return [_result(turn, step, call, _UNREAD if read_only else _UNKNOWN, "TOOL_OUTCOME_UNKNOWN")]


def _result(turn: int, step: int, call: OpenCall, text: str, code: str) -> Draft:
    result = ToolResult(turn, step, call.id, text_content(text), True, ToolErrorInfo("Aborted", code))
    return Draft(result, surface_op="append", sources=None if call.started is None else ((call.started, call.started),))
