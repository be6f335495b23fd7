"""What was sent is proven by the log alone: under other dialect options, after the configuration was changed, and without one.

The commands are real and in processes of their own; the bodies are those that a provider got.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.support.chat_stream import DONE, call, calls, chunk, reply
from tests.support.commands import there
from tests.support.daemons import Json, Place, new_session
from tests.support.fake_provider import Answer, FakeProvider, answer

pytestmark = pytest.mark.anyio

FIRST = """
[providers.first]
dialect = "chat-completions"
base_url = "{url}"

[models."first/small"]
temperature = 0.5
max_output = 100
"""

SECOND = """
[providers.second]
dialect = "chat-completions"
base_url = "{url}"
options = {{ max_tokens_field = "max_completion_tokens", tool_only_content = "{empty}", include_usage = false }}

[models."second/large"]
temperature = 0.25
max_output = 200
extra = {{ seed = 7 }}
"""


def looks_first(text: str) -> tuple[Answer, Answer]:
    """A reply of one call without a word, and the reply behind its result."""
    looked = calls(call(0, "c0", "read_file", '{"path":"animals.txt"}')) + chunk({}, "tool_calls") + DONE
    return answer(looked), answer(reply(text))


@pytest.fixture
def provider() -> Iterator[FakeProvider]:
    """A server that both providers of the configuration name."""
    with FakeProvider(*looks_first("It sleeps."), *looks_first("Still."), *looks_first("Yes.")) as server:
        yield server


async def recorded(place: Place, provider: FakeProvider, *, empty: str) -> str:
    """Record a session of three turns: with the first model, with the second, and, after a restart, with the first again."""
    place.configure('model = "first/small"\n' + (FIRST + SECOND).format(url=provider.base_url, empty=empty))
    async with place.daemon() as client:
        session = await new_session(client, place)
        await client.prompt(session, "Does it sleep?")
        await client.request("session/configure", {"session": session, "patch": {"model": "second/large"}})
        await client.prompt(session, "And now?")
    async with place.daemon() as client:
        await client.open_session(session)
        await client.request("session/configure", {"session": session, "patch": {"model": "first/small"}})
        await client.prompt(session, "And now?")
    assert len(provider.requests) == 6
    return session


def assert_all_equal(place: Place, session: str) -> None:
    """Verify every request in another process."""
    done = there(place, "verify", session, "--json", "--strict")
    report: Json = done.values[0]["report"]
    assert (done.code, report["requests"], report["equal"], report["differences"]) == (0, 6, 6, [])


def assert_all_rebuilt(place: Place, session: str, bodies: list[bytes]) -> None:
    """Rebuild every request in other processes."""
    steps = [f"{turn}.{step}" for turn in (1, 2, 3) for step in (1, 2)]
    for at, body in zip(steps, bodies, strict=True):
        shown = there(place, "rebuild", session, at)
        assert (shown.code, shown.out, shown.err) == (0, body, "")


@pytest.mark.parametrize(("empty", "written"), [("empty", b'"content":"",'), ("absent", b"")])
async def test_a_session_of_two_models_of_other_options_is_proven_whatever_the_configuration_says_later(
    place: Place, provider: FakeProvider, empty: str, written: bytes
) -> None:
    """Invariant: What was sent is proven by the log alone, whatever the configuration says later."""
    session = await recorded(place, provider, empty=empty)
    bodies = [request.body for request in provider.requests]
    for body in bodies[2:4]:
        assert b'"max_completion_tokens":200' in body
        assert b'"seed":7' in body
        assert b"stream_options" not in body
    for body in bodies[:2] + bodies[4:]:
        assert b'"max_tokens":100' in body
        assert b"stream_options" in body
    for body, content in ((bodies[3], written), (bodies[1], b'"content":null,')):
        assert b'"role":"assistant",' + content + b'"tool_calls"' in body
    assert_all_equal(place, session)

    changed = (FIRST + SECOND).replace("0.5", "1.0").replace("200", "300").replace("seed = 7", "top_k = 1")
    changed = changed.replace("max_completion_tokens", "max_tokens").replace("include_usage = false", "include_usage = true")
    place.configure('model = "second/large"\n' + changed.format(url="http://127.0.0.1:9/v1", empty="null"))
    assert_all_equal(place, session)
    assert_all_rebuilt(place, session, bodies)

    place.configure('model = "rehearsal/workspace"\n[tools]\nenabled = []\n')
    assert_all_equal(place, session)


async def test_a_session_is_proven_without_any_configuration(place: Place, provider: FakeProvider) -> None:
    session = await recorded(place, provider, empty="absent")
    place.config.unlink()
    without = {"REFOLD_CONFIG": ""}
    done = there(place, "verify", session, "--json", env=without)
    assert (done.code, done.values[0]["report"]["equal"]) == (0, 6)
    shown = there(place, "rebuild", session, "2.2", env=without)
    assert (shown.code, shown.out) == (0, provider.requests[3].body)


async def test_calls_that_a_model_writes_as_text_are_made_and_go_back_in_the_structured_form(place: Place) -> None:
    written = '{"name": "read_file", "arguments": {"path": "animals.txt", "startLine": "1"}}'
    with FakeProvider(answer(reply(f"```json\n{written}\n```")), answer(reply("It sleeps."))) as provider:
        place.provider(provider.base_url)
        async with place.daemon() as client:
            session = await new_session(client, place)
            await client.prompt(session, "Does it sleep?")
            assert (await client.request("log/verify", {"session": session}))["equal"] == 2
    said, *_ = messages = [event["data"] for event in await place.recorded(session) if event["type"] == "assistant/message"]
    assert [message.get("written", False) for message in messages] == [True, False]
    assert [block["type"] for block in said["content"]] == ["tool-call"]
    *_, called, result = json.loads(provider.requests[1].body)["messages"]
    assert called["tool_calls"][0]["function"]["name"] == "read_file"
    assert (result["role"], result["tool_call_id"]) == ("tool", called["tool_calls"][0]["id"])
    assert not result["content"].startswith("wrong arguments")


async def test_with_the_option_off_such_a_reply_is_an_answer(place: Place) -> None:
    written = '{"name": "read_file", "arguments": {"path": "animals.txt"}}'
    with FakeProvider(answer(reply(written))) as provider:
        place.provider(provider.base_url)
        place.configure(place.config.read_text().replace("options = {", 'options = { text_calls = "off",'))
        async with place.daemon() as client:
            session = await new_session(client, place)
            await client.prompt(session, "Show me a call.")
    (said,) = [event["data"] for event in await place.recorded(session) if event["type"] == "assistant/message"]
    assert said["content"] == [{"type": "text", "text": written}]
