"""Ways in which a provider fails, as answers for the fake provider, with what must become of each turn.

In the notation of the failure cases. Whatever happens, the next prompt of the session must make a well-formed request.
"""

from __future__ import annotations

import json
import socket
from typing import Any, Final

from msgspec import Struct

from tests.support.chat_stream import DONE, call, calls, event, text
from tests.support.fake_provider import Answer, answer
from tests.support.prefixes import without_opener

HTML: Final = (("content-type", "text/html; charset=utf-8"),)
JSON: Final = (("content-type", "application/json"),)

HALF_A_CALL: Final = calls(call(0, "c0", "read_file", '{"path":"ani'))
"""A call whose arguments stop in the middle of a name."""


class Bad(Struct, frozen=True):
    """A failing answer, the kind of the turn's error, words of its sentence, the hint that it must end with, the status
    that is recorded, and the text that must be kept."""

    answer: Answer
    kind: str
    sentence: str
    hint: str
    status: int | None = None
    kept: str = ""


def _error(status: int, error: Any, *headers: tuple[str, str]) -> Answer:
    return Answer((json.dumps({"error": error}).encode(),), status, (*JSON, *headers))


_CUT = "provider.badStream"
_BROKE = "the connection broke in the middle of the provider's answer"

BAD: Final[dict[str, Bad]] = {
    "401": Bad(
        _error(401, {"message": "bad key", "type": "invalid_request_error"}),
        "provider.auth",
        "(401, invalid_request_error): bad key",
        "no key is configured: use `refold login fake`, or set providers.fake.key_env",
        401,
    ),
    "500": Bad(
        _error(500, {"message": "oops", "type": "server_error"}),
        "provider.overloaded",
        "(500, server_error): oops",
        "try again later",
        500,
    ),
    "500 without a word": Bad(
        Answer((), 500, (("content-type", "text/plain"),)), "provider.overloaded", "500 (Internal", "try again later", 500
    ),
    "A-06a a page of HTML with 502": Bad(
        Answer((b"<html>" + b"<p>busy</p>" * 30_000,), 502, HTML),
        "provider.overloaded",
        "502 (Bad Gateway) with a page of HTML",
        "try again later",
        502,
    ),
    "A-06b a sign-in page with 200": Bad(
        Answer((b"<html><title>Sign in</title></html>",), 200, HTML),
        _CUT,
        "expected an event stream, and the provider sent text/html ('Sign in')",
        "check base_url, and whether something signs you in in between",
        200,
    ),
    "A-05a an error object": Bad(
        answer(event({"error": {"message": "quota used up", "code": "insufficient_quota"}}) + DONE),
        "provider.rejected",
        "(insufficient_quota): quota used up",
        "check the plan and the balance of the account",
    ),
    "A-05b an error string": Bad(
        answer(event({"error": "backend stopped"}) + DONE), "provider.overloaded", "backend stopped", "try again later"
    ),
    "A-05c an error behind text": Bad(
        answer(text("Par") + event({"error": {"message": "gone", "type": "server_error"}})),
        "provider.overloaded",
        "(server_error): gone",
        "try again later",
        kept="Par",
    ),
    "A-06c nothing": Bad(answer(), _CUT, "was empty: the stream ended before anything came", "try again"),
    "A-06c comments": Bad(answer(b": keep-alive\n\n" * 3), _CUT, "was empty: the stream ended before", "try again"),
    "cut before anything": Bad(answer(end="cut"), _CUT, _BROKE, "try again"),
    "reset before anything": Bad(answer(end="reset"), _CUT, _BROKE, "try again"),
    "A-04b the end in text": Bad(
        answer(text("ha"), text("lf")), _CUT, "was cut off in the middle of the text", "try again", kept="half"
    ),
    "A-04b cut in text": Bad(answer(text("half"), end="cut"), _CUT, _BROKE, "try again", kept="half"),
    "A-04b a reset in text": Bad(answer(text("half"), end="reset"), _CUT, _BROKE, "try again", kept="half"),
    "A-04c the end in a call": Bad(
        answer(HALF_A_CALL), _CUT, "was cut off in the middle of a tool call, which did not run", "try again"
    ),
    "A-04c the end in a call behind text": Bad(
        answer(text("I read."), HALF_A_CALL),
        _CUT,
        "was cut off in the middle of a tool call, which did not run",
        "try again",
        kept="I read.",
    ),
    "A-04d cut in a call": Bad(answer(HALF_A_CALL, end="cut"), _CUT, _BROKE, "try again"),
    "A-04d a reset in a call behind text": Bad(
        answer(text("I read."), HALF_A_CALL, end="reset"), _CUT, _BROKE, "try again", kept="I read."
    ),
    "the end behind a whole call": Bad(
        answer(calls(call(0, "c0", "read_file", '{"path":"animals.txt"}'))), _CUT, "which did not run", "try again"
    ),
}
"""Every way to fail that an HTTP answer can have."""


def closed_address() -> str:
    """Give a base address at which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{taken.getsockname()[1]}/v1"


def messages_of(body: bytes) -> list[dict[str, Any]]:
    """Give the messages of a body behind system text and opener, after checking that a strict provider would take them: nothing
    is empty, every call has its result right behind it, every result its call, and arguments are objects."""
    system, *messages = json.loads(body)["messages"]
    messages = without_opener(messages)
    assert system["role"] == "system"
    open_calls: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            assert message["content"].strip()
            open_calls.remove(message["tool_call_id"])
            continue
        assert not open_calls, "a call without its result"
        asked = message.get("tool_calls", [])
        assert (message["content"] or "").strip() or asked, "an empty message"
        assert not asked or message["role"] == "assistant"
        assert all(isinstance(json.loads(one["function"]["arguments"]), dict) for one in asked)
        open_calls = [one["id"] for one in asked]
    assert not open_calls, "a call without its result"
    return messages
