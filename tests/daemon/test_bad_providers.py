"""A provider that fails costs its turn and nothing else: kind, sentence and hint, the text kept, no cut call run, the
session usable. Each failure by `refold run`, and over a daemon. Cases A-04, A-05a–c, A-06a–c and B-03c.
"""

from __future__ import annotations

import pytest

from tests.support.bad_providers import BAD, Bad, closed_address, messages_of
from tests.support.chat_stream import reply
from tests.support.commands import Done, Here
from tests.support.daemons import Json, Place, new_session, types
from tests.support.fake_provider import FakeProvider, answer

REFUSED = Bad(
    answer(),
    "provider.unreachable",
    "could not be reached: the connection was refused",
    "is the server running, and is base_url right?",
)
"""A refused connection: there is nobody to answer."""

OVER_A_DAEMON = (
    "refused",
    "401",
    "500",
    "A-06b a sign-in page with 200",
    "A-05a an error object",
    "A-05b an error string",
    "A-05c an error behind text",
    "A-06c nothing",
    "A-04b the end in text",
    "A-04b a reset in text",
    "A-04c the end in a call",
    "A-04d a reset in a call behind text",
)
"""One failure of each sort: that a daemon and a command share the loop is shown by these."""


@pytest.fixture
def refold(place: Place, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Here:
    """Commands in this process."""
    return Here(place, capfd, monkeypatch)


def check_end(events: list[Json], bad: Bad) -> Json:
    """Check how the last turn is recorded: its end, what was kept, and that nothing ran. Gives the error."""
    reason = events[-1]["data"]["reason"]
    assert reason["kind"] == "error"
    error = reason["error"]
    assert error["kind"] == bad.kind
    assert bad.sentence in error["message"]
    assert error["message"].endswith(bad.hint)
    assert "\n" not in error["message"]
    assert error["step"] == 1
    assert error.get("status") == bad.status
    tail = ["assistant/message"] if bad.kept else []
    assert [event["type"] for event in events[-2 - len(tail) :]] == [*tail, "step/end", "turn/end"]
    assert events[-2]["data"]["outcome"] == "error"
    if bad.kept:
        kept = events[-3]["data"]
        assert kept["content"] == [{"type": "text", "text": bad.kept}]
        assert kept["interrupted"]
    assert not {"tool/call", "tool/result"} & set(types(events))
    return error


def check_next(body: bytes, bad: Bad) -> None:
    """Check the request of the prompt behind the failure."""
    kept = [{"role": "assistant", "content": bad.kept}] if bad.kept else []
    assert messages_of(body) == [{"role": "user", "content": "first"}, *kept, {"role": "user", "content": "second"}]


def check_told(done: Done, bad: Bad, error: Json) -> None:
    """Check what a person was told."""
    assert done.code == (3 if bad.kind == "provider.auth" else 4)
    assert done.lines == [*([bad.kept] if bad.kept else []), f"session {done.session}"]
    assert done.err == f"turn failed in step 1: {bad.kind}: {error['message']}\n"


@pytest.mark.parametrize("name", BAD)
def test_by_command_a_failure_costs_its_turn_and_the_session_goes_on(refold: Here, name: str) -> None:
    bad = BAD[name]
    with FakeProvider(bad.answer, answer(reply("Good."))) as provider:
        refold.place.provider(provider.base_url)
        done = refold("run", "first")
        session = done.session
        check_told(done, bad, check_end(refold.events(session), bad))
        assert refold("verify", session).code == 0
        good = refold("run", "second", "--session", session)
        assert (good.code, good.lines[0]) == (0, "Good.")
        assert len(provider.requests) == 2  # nothing was tried again
        check_next(provider.requests[1].body, bad)
        assert refold("rebuild", session, "1.1").out == provider.requests[0].body
        assert refold("verify", session).lines[0].startswith("verified 2/2 requests")


def test_by_command_a_refused_connection_costs_its_turn_and_the_session_goes_on(refold: Here) -> None:
    refold.place.provider(closed_address())
    done = refold("run", "first")
    check_told(done, REFUSED, check_end(refold.events(done.session), REFUSED))
    with FakeProvider(answer(reply("Good."))) as provider:
        refold.place.provider(provider.base_url)
        assert refold("run", "second", "--session", done.session).code == 0
        check_next(provider.requests[0].body, REFUSED)
    assert refold("verify", done.session).lines[0].startswith("verified 2/2 requests")


@pytest.mark.anyio
@pytest.mark.parametrize("name", OVER_A_DAEMON)
async def test_over_a_daemon_a_failure_costs_its_turn_and_the_session_goes_on(place: Place, name: str) -> None:
    bad = BAD.get(name, REFUSED)
    async with FakeProvider(*([bad.answer] if bad is not REFUSED else []), answer(reply("Good."))) as provider:
        place.provider(closed_address() if bad is REFUSED else provider.base_url)
        async with place.daemon() as client:
            session = await new_session(client, place)
            end = await client.prompt(session, "first")
            events = await place.recorded(session)
            assert events[-1] == end
            check_end(events, bad)
            if bad is not REFUSED:  # the same daemon goes on
                assert (await client.prompt(session, "second"))["data"]["reason"] == {"kind": "completed"}
        if bad is REFUSED:  # another one, with an address that is right
            place.provider(provider.base_url)
            async with place.daemon() as client:
                await client.open_session(session)
                assert (await client.prompt(session, "second"))["data"]["reason"] == {"kind": "completed"}
        check_next(provider.requests[-1].body, bad)
    assert (await place.verify(session))["equal"] == 2


def test_b03c_prompts_that_were_refused_leave_no_empty_message(refold: Here) -> None:
    refusal = BAD["401"].answer
    with FakeProvider(refusal, refusal, refusal, answer(reply("Good."))) as provider:
        refold.place.provider(provider.base_url)
        done = refold("run", "one")
        for prompt in ("two", "three"):
            assert refold("run", prompt, "--session", done.session).code == 3
        assert refold("run", "four", "--session", done.session).code == 0
        said = [(message["role"], message["content"]) for message in messages_of(provider.requests[3].body)]
        assert said == [("user", "one"), ("user", "two"), ("user", "three"), ("user", "four")]
    events = refold.events(done.session)
    assert [event["data"]["reason"]["kind"] for event in events if event["type"] == "turn/end"] == [*["error"] * 3, "completed"]
    assert refold("verify", done.session).lines[0].startswith("verified 4/4 requests")
