"""Whether a call may run, through whole daemons: asked, answered, refused, told, asked again."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from refold_client import RpcError
from tests.support.approval_files import always, asked, change, changed, changing, course, decisions, started
from tests.support.daemons import Json, Place, until
from tests.support.plugin_files import results

pytestmark = pytest.mark.anyio

SAY: Json = {"text": "Done."}
CLIENT: Json = {"kind": "client", "name": "refold_client"}

RUN = ["tool/call", "approval/asked", "approval/decided", "tool/result"]


async def test_a_call_runs_once_it_was_allowed_and_what_is_asked_is_on_disk(place: Place) -> None:
    changing(place, change(), SAY)
    async with place.daemon() as client:
        person, session, events, question = await asked(client, place)
        assert changed(place) == []
        recorded = await place.recorded(session)  # by another process, while the question waits
        assert recorded[-1]["type"] == "approval/asked"
        assert recorded[-1]["data"]["id"] == question["approval"]
        assert (question["session"], question["turn"], question["callId"], question["tool"]) == (session, 1, "c1", "change")
        assert question["subject"] == recorded[-1]["data"]["subject"] == {"kind": "text", "text": 'change {"line":"one"}'}
        assert [(one["id"], one["kind"]) for one in question["options"]] == [
            ("once", "allowOnce"),
            ("session", "allowSession"),
            ("deny", "deny"),
        ]
        assert question["default"] == "deny"
        assert 0 < question.get("deadlineMs", 0) <= 600_000
        person.says("once")
        told = await until(events, "turn/end")
        assert told[-1]["data"]["reason"] == {"kind": "completed"}
        assert course(told) == RUN
        assert decisions(told) == [("allowed", "once", CLIENT)]
        assert changed(place) == ["one"]
    assert (await place.verify(session))["differences"] == []


async def test_what_was_allowed_for_the_session_is_shown_and_taken_back_by_configure(place: Place) -> None:
    changing(place, change("one"), SAY)
    async with place.daemon() as client:
        client.on_approval(always("session"))
        session, events = await started(client, place)
        await until(events, "turn/end")
    changing(place, change("two", "c2"), SAY)
    async with place.daemon() as client:  # nobody answers here
        assert (await client.open_session(session))["grants"] == ["change"]
        told = await client.configure(session, revoke=["change"])
        assert told["settings"] == {"revoked": ["change"]}
        assert "grants" not in await client.open_session(session)
        await client.configure(session, effort="low")
        await client.prompt(session, "again")
    assert changed(place) == ["one"]
    assert (await place.verify(session))["differences"] == []


async def test_what_is_allowed_for_the_session_is_asked_once_also_by_the_next_daemon(place: Place) -> None:
    changing(place, change("one"), SAY)
    async with place.daemon() as client:
        client.on_approval(always("session"))
        session, events = await started(client, place)
        await until(events, "turn/end")
    changing(place, change("two", "c2"), SAY)
    async with place.daemon() as client:  # nobody answers here: it need not be asked
        await client.open_session(session)
        await client.prompt(session, "again")
        recorded = await place.recorded(session)
    assert changed(place) == ["one", "two"]
    granted = {"kind": "loop", "name": "allowed for the session"}
    assert decisions(recorded) == [("allowed", "session", CLIENT), ("allowed", "session", granted)]


async def test_a_denied_call_does_not_run_the_model_is_told_and_the_next_call_is_asked_anew(place: Place) -> None:
    changing(place, change("one"), change("two", "c2"), SAY)
    async with place.daemon() as client:
        person, session, events, first = await asked(client, place)
        person.says("deny")
        second = await person.question()
        person.says("once")
        told = await until(events, "turn/end")
    assert first["approval"] != second["approval"]
    assert changed(place) == ["two"]
    assert [row[0] for row in decisions(told)] == ["denied", "allowed"]
    assert results(told)[0]["error"] == {"name": "Denied", "code": "DENIED"}
    assert "did not allow this call of change" in results(told)[0]["content"][0]["text"]
    assert (await place.verify(session))["differences"] == []


async def test_nobody_who_answers_in_time_is_a_denial_and_the_request_is_cancelled(place: Place) -> None:
    changing(place, change(), SAY, more="permissions.approval_timeout_s = 0.2\n")
    async with place.daemon() as client:
        person, _, events, question = await asked(client, place)
        assert question.get("deadlineMs", 0) <= 200
        told = await until(events, "turn/end")
        assert await person.cancelled.get() == question
    assert changed(place) == []
    assert decisions(told) == [("denied", "once", {"kind": "loop", "name": "time limit"})]
    assert "Nobody answered within 0.2 s" in results(told)[0]["content"][0]["text"]


@pytest.mark.parametrize("reply", ["always", "", 7, ["once"], {"option": "once"}, True], ids=repr)
async def test_a_reply_that_names_no_option_is_the_default(place: Place, reply: Any) -> None:
    """Invariant: Whatever a client makes of a question that is no answer, it denies; the first answer wins."""
    changing(place, change(), SAY)
    async with place.daemon() as client:
        client.on_approval(always(reply))
        _, events = await started(client, place)
        told = await until(events, "turn/end")
        assert told[-1]["data"]["reason"] == {"kind": "completed"}
    assert changed(place) == []
    assert decisions(told) == [("denied", "once", CLIENT)]
    assert b"a call of change is denied, since the client gave no answer" in place.errors.read_bytes()


@pytest.mark.parametrize("reply", [None, [], "once", {}, {"option": None}, {"Option": "once"}], ids=repr)
async def test_a_reply_of_another_shape_is_the_default(place: Place, reply: Any) -> None:
    changing(place, change(), SAY)
    async with place.daemon() as client:
        client.connection.on_request("approval/request", always(reply))
        _, events = await started(client, place)
        assert decisions(await until(events, "turn/end")) == [("denied", "once", CLIENT)]
    assert changed(place) == []


async def test_a_client_that_does_not_know_questions_denies(place: Place) -> None:
    changing(place, change(), SAY)
    async with place.daemon() as client:
        _, events = await started(client, place)
        assert decisions(await until(events, "turn/end")) == [("denied", "once", CLIENT)]
    assert b"this client does not answer questions (on_approval) (-32601)" in place.errors.read_bytes()
    assert changed(place) == []


async def test_the_first_answer_wins_by_whichever_method_and_a_later_one_is_told_so(place: Place) -> None:
    changing(place, change(), SAY)
    async with place.daemon() as client:
        person, session, events, question = await asked(client, place)
        approval = question["approval"]
        with pytest.raises(RpcError) as raised:
            await client.answer_approval("0" * 8, approval, "allowed")
        assert raised.value.kind == "session.unknown"
        with pytest.raises(RpcError) as raised:
            await client.answer_approval(session, "0" * 8, "allowed")
        assert raised.value.kind == "approval.settled"
        with pytest.raises(RpcError, match="a call is denied once"):
            await client.answer_approval(session, approval, "denied", scope="session")
        seq = await client.answer_approval(session, approval, "allowed")
        recorded = await place.recorded(session)
        assert (recorded[seq]["type"], recorded[seq]["data"]["id"]) == ("approval/decided", approval)
        assert await person.cancelled.get() == question
        with pytest.raises(RpcError) as raised:
            await client.answer_approval(session, approval, "denied")
        assert raised.value.kind == "approval.settled"
        told = await until(events, "turn/end")
        assert decisions(told) == [("allowed", "once", CLIENT)]
    assert changed(place) == ["one"]
    assert place.errors.read_bytes() == b"", "the reply to a request that was cancelled is no news"


async def test_whoever_follows_or_opens_the_session_anew_is_asked_again_under_the_same_id(place: Place) -> None:
    changing(place, change(), SAY)
    async with place.daemon() as client:
        person, session, events, question = await asked(client, place)
        await client.subscribe(session, after="tail")
        again = await person.question()
        assert await person.cancelled.get() == question
        await client.open_session(session)
        third = await person.question()
        person.says("once")
        assert await person.cancelled.get() == again
        assert again | {"deadlineMs": 0} == question | {"deadlineMs": 0} == third | {"deadlineMs": 0}
        assert third.get("deadlineMs", 0) <= again.get("deadlineMs", 0) <= question.get("deadlineMs", 0)
        told = await until(events, "turn/end")
        await client.subscribe(session)
    assert course(told) == RUN
    assert decisions(told) == [("allowed", "once", CLIENT)]
    assert changed(place) == ["one"]
    assert person.asked.empty()


async def test_what_waits_for_an_answer_is_told_by_status_word_and_phase(place: Place) -> None:
    changing(place, change(), SAY)
    async with place.daemon((sys.executable, "-m", "tests.support.phase_daemon")) as client:
        words = client.listen("sessions/changed")
        person, session, events, question = await asked(client, place)
        assert [(await anext(words))["status"] for _ in range(2)] == ["running", "waiting"]
        status = (await client.read(session, "status"))["status"]
        assert (status["status"], status["openApprovals"]) == ("waiting", [question["approval"]])
        while events.phase != "approval":
            await client.health()
        person.says("once")
        await until(events, "turn/end")
        assert [(await anext(words))["status"] for _ in range(2)] == ["running", "idle"]


@pytest.mark.parametrize("mode", ["allow", "deny"])
async def test_a_setting_that_changes_meanwhile_leaves_an_open_question_open(place: Place, mode: str) -> None:
    changing(place, change("one"), change("two", "c2"), SAY)
    async with place.daemon() as client:
        person, session, events, _ = await asked(client, place)
        await client.configure(session, permissions={"mode": mode})
        status = (await client.read(session, "status"))["status"]["status"]
        assert status == "waiting"
        person.says("once")
        told = await until(events, "turn/end")
    assert person.asked.empty(), "the setting is for calls from now on"
    assert course(told) == [*RUN, "tool/call", "tool/result"]
    assert changed(place) == (["one", "two"] if mode == "allow" else ["one"])


async def test_a_question_in_one_session_keeps_no_other_waiting(place: Place) -> None:
    changing(place, change("one"), change("two", "c2"), SAY, SAY)
    async with place.daemon() as client:
        person, _, first, one = await asked(client, place)
        _, second = await started(client, place)
        two = await person.question()
        assert one["session"] != two["session"]
        await client.answer_approval(two["session"], two["approval"], "denied")
        await until(second, "turn/end")
        await client.answer_approval(one["session"], one["approval"], "allowed")
        await until(first, "turn/end")
    assert changed(place) == ["one"]
