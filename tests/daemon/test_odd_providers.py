"""Answers that are unusual and right, end to end: calls without arguments, missing marks, tools that print nothing.

Cases A-01, A-02h, A-04a, A-04e, A-08a, A-08c, B-03d and B-03e.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from refold_client import RpcError
from tests.support.bad_providers import messages_of
from tests.support.chat_stream import DONE, call, calls, chunk, reply, text
from tests.support.commands import Here
from tests.support.daemons import Place, new_session
from tests.support.fake_provider import Answer, FakeProvider, answer

CALLED = chunk({}, "tool_calls") + DONE


@pytest.fixture
def refold(place: Place, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Here:
    """Commands in this process."""
    return Here(place, capfd, monkeypatch)


def ran(refold: Here, *answers: Answer) -> tuple[str, list[list[dict[str, Any]]]]:
    """Run a turn and a second one against a provider that gives these answers; give the session and the messages of
    each request."""
    with FakeProvider(*answers, answer(reply("Good."))) as provider:
        refold.place.provider(provider.base_url)
        done = refold("run", "first")
        assert done.code == 0, done.err
        assert refold("run", "second", "--session", done.session).code == 0
        assert refold("verify", done.session).code == 0
        return done.session, [messages_of(request.body) for request in provider.requests]


@pytest.mark.parametrize("arguments", ["", "  ", "null"])
def test_a08a_a_call_without_arguments_runs_with_none_and_is_replayed_as_an_object(refold: Here, arguments: str) -> None:
    asked = answer(calls(call(0, "c0", "list_files", arguments)) + CALLED)
    session, requests = ran(refold, asked, answer(reply("One file.")))
    events = refold.events(session)
    (made,) = (event["data"] for event in events if event["type"] == "tool/call")
    assert (made["name"], made["arguments"]) == ("list_files", "{}")
    (result,) = (event["data"] for event in events if event["type"] == "tool/result")
    assert result["content"] == [{"type": "text", "text": "animals.txt"}]
    for messages in requests[1:]:
        assert messages[1]["tool_calls"][0]["function"]["arguments"] == "{}"
        assert messages[2] == {"role": "tool", "tool_call_id": "c0", "content": "animals.txt"}


def test_a08c_a_call_without_an_argument_that_is_needed_names_it_and_does_not_run(refold: Here) -> None:
    asked = answer(calls(call(0, "c0", "read_file", "")) + CALLED)
    session, requests = ran(refold, asked, answer(reply("Which one?")))
    (result,) = (event["data"] for event in refold.events(session) if event["type"] == "tool/result")
    assert (result["isError"], result["error"]["code"]) == (True, "INVALID_ARGUMENTS")
    assert "path" in requests[1][2]["content"]


def test_b03d_a_tool_that_prints_nothing_is_answered_for_with_a_note(refold: Here) -> None:
    (refold.place.workspace / "empty.txt").touch()
    asked = answer(calls(call(0, "c0", "read_file", json.dumps({"path": "empty.txt"}))) + CALLED)
    _, requests = ran(refold, asked, answer(reply("It is empty.")))
    assert requests[1][2]["role"] == "tool"
    assert requests[1][2]["content"].strip()


def test_an_empty_reply_is_told_and_the_session_goes_on(refold: Here) -> None:
    with FakeProvider(answer(chunk({}, "stop") + DONE), answer(reply("Good."))) as provider:
        refold.place.provider(provider.base_url)
        done = refold("run", "first")
        assert (done.code, "without any text, thinking or call" in done.err) == (4, True)
        assert refold("run", "second", "--session", done.session).code == 0
        assert [message["content"] for message in messages_of(provider.requests[1].body)] == ["first", "second"]


@pytest.mark.parametrize(
    "stream",
    [text("done") + chunk({}, "stop"), text("done") + DONE, (text("done") + chunk({}, "stop") + DONE)[:-2]],
    ids=["A-04a no DONE", "A-04e no finish reason", "A-02h no blank line at the end"],
)
def test_a_reply_with_one_mark_of_its_end_is_complete(refold: Here, stream: bytes) -> None:
    _, requests = ran(refold, answer(stream))
    assert requests[1][1] == {"role": "assistant", "content": "done"}


def test_a01_characters_cut_by_the_network_are_whole_in_output_log_and_next_request(refold: Here) -> None:
    stream = reply("那🙂")
    session, requests = ran(refold, answer(*(stream[at : at + 1] for at in range(len(stream)))))
    assert requests[1][1] == {"role": "assistant", "content": "那🙂"}
    assert refold("log", session).lines[1] == "那🙂"


@pytest.mark.anyio
@pytest.mark.parametrize("content", [[], [{"type": "text", "text": " \n\u3000"}], [{"type": "text", "text": ""}] * 2])
async def test_b03e_a_prompt_of_blanks_is_refused_and_leaves_nothing(place: Place, content: list[dict[str, str]]) -> None:
    async with FakeProvider(answer(reply("Good."))) as provider:
        place.provider(provider.base_url)
        async with place.daemon() as client:
            session = await new_session(client, place)
            with pytest.raises(RpcError) as caught:
                await client.request("turn/start", {"session": session, "content": content})
            assert caught.value.code == -32602
            assert (await client.prompt(session, "second"))["data"]["reason"] == {"kind": "completed"}
        assert messages_of(provider.requests[0].body) == [{"role": "user", "content": "second"}]
    (accepted,) = (event for event in await place.recorded(session) if event["type"] == "input/accepted")
    assert accepted["data"]["content"] == [{"type": "text", "text": "second"}]
