"""Questions cut off: by an interrupt, a kill, the end of the client. B-01 and D-01 where a call waits for its answer.

Invariant: A question that is cut off lets nothing run, and what ran is not said to be undone.
"""

from __future__ import annotations

import pytest

from refold_client import Client, RpcError
from tests.support.approval_files import Person, always, asked, change, changed, changing, course, decisions, started
from tests.support.daemons import Json, Place, gone, kill, types, until
from tests.support.plugin_files import results

pytestmark = pytest.mark.anyio

SAY: Json = {"text": "Done."}


async def test_b01_an_interrupt_settles_the_question_as_cancelled_and_takes_it_back(place: Place) -> None:
    changing(place, change(), SAY)
    async with place.daemon() as client:
        person, session, events, question = await asked(client, place)
        assert await client.interrupt(session, 1) == {"kind": "aborted", "cause": {"kind": "user"}}
        assert await person.cancelled.get() == question
        told = await until(events, "turn/end")
        assert [row[0] for row in decisions(told)] == ["cancelled"]
        assert results(told)[0]["error"]["code"] == "ABORTED_BEFORE_DISPATCH"
        with pytest.raises(RpcError) as raised:
            await client.answer_approval(session, question["approval"], "allowed")
        assert raised.value.kind == "approval.settled"
        await client.prompt(session, "again")
    assert changed(place) == []
    assert (await place.verify(session))["differences"] == []


async def test_a_close_with_cancel_takes_the_question_back(place: Place) -> None:
    changing(place, change(), SAY)
    async with place.daemon() as client:
        person, session, _, question = await asked(client, place)
        await client.close_session(session, cancel=True)
        assert await person.cancelled.get() == question
        assert [row[0] for row in decisions(await place.recorded(session))] == ["cancelled"]
    assert changed(place) == []


async def test_b01_a_kill_while_a_question_waits_settles_it_as_cancelled_and_the_call_as_not_started(place: Place) -> None:
    changing(place, change(), SAY)
    async with place.daemon() as client:
        _, session, _, question = await asked(client, place)
        await kill(client)
    changing(place, SAY)
    async with place.daemon() as client:
        person = Person(client)
        opened = await client.open_session(session)
        assert opened["status"] == {"status": "idle"}
        recorded = await place.recorded(session)
        assert types(recorded)[-4:] == ["approval/decided", "tool/result", "step/end", "turn/end"]
        assert recorded[-4]["data"]["id"] == question["approval"]
        assert [row[0] for row in decisions(recorded)] == ["cancelled"]
        assert results(recorded)[0]["error"]["code"] == "TOOL_NOT_STARTED"
        with pytest.raises(RpcError) as raised:
            await client.answer_approval(session, question["approval"], "allowed")
        assert raised.value.kind == "approval.settled"
        await client.prompt(session, "again")
        assert person.asked.empty(), "what a crash settled is not asked again"
    assert changed(place) == []
    assert (await place.verify(session))["differences"] == []


async def test_b01_a_kill_after_the_permission_and_before_the_result_leaves_an_unknown_outcome(place: Place) -> None:
    changing(place, change(wait=True), SAY)
    async with place.daemon() as client:
        client.on_approval(always("once"))
        session, events = await started(client, place)
        await until(events, "approval/decided")
        while not changed(place):
            await client.health()
        await kill(client)
    changing(place, SAY)
    async with place.daemon() as client:
        await client.open_session(session)
        recorded = await place.recorded(session)
        assert [row[0] for row in decisions(recorded)] == ["allowed"]
        assert results(recorded)[0]["error"]["code"] == "TOOL_OUTCOME_UNKNOWN"
        await client.prompt(session, "again")
    assert changed(place) == ["one"], "the deed was done, and nobody did it twice"
    assert (await place.verify(session))["differences"] == []


async def leave(client: Client) -> None:
    """Close the daemon's input, like an editor that ended."""
    assert client.connection.process.stdin is not None
    await client.connection.process.stdin.aclose()


TWICE: Json = {
    "text": "I change it twice.",
    "calls": [{"name": "change", "arguments": {"line": line}, "id": f"c{line}"} for line in ("one", "two")],
}


async def test_d01a_the_end_of_the_client_denies_what_is_open_and_what_the_step_asks_later(place: Place) -> None:
    changing(place, TWICE, SAY)
    async with place.daemon() as client:
        _, session, _, _ = await asked(client, place)
        await leave(client)
        assert await gone(client) == 1
    recorded = await place.recorded(session)
    by = {"kind": "loop", "name": "client gone"}
    assert decisions(recorded) == [("denied", "once", by)] * 2
    assert course(recorded) == ["tool/call", "approval/asked", "approval/decided", "tool/result"] * 2
    assert "Nobody could be asked" in results(recorded)[1]["content"][0]["text"]
    assert recorded[-1]["data"]["reason"]["cause"]["kind"] == "disposed"
    assert changed(place) == []
    assert (await place.verify(session))["differences"] == []


@pytest.mark.parametrize("how", ["cancel", "signal"])
async def test_d01a_a_daemon_that_is_to_end_at_once_cancels_the_question(place: Place, how: str) -> None:
    changing(place, change(), SAY)
    async with place.daemon(onDisconnect="cancel" if how == "cancel" else "finish") as client:
        _, session, _, _ = await asked(client, place)
        if how == "cancel":
            await leave(client)
        else:
            client.connection.process.terminate()
        await gone(client)
    recorded = await place.recorded(session)
    assert [row[0] for row in decisions(recorded)] == ["cancelled"]
    assert recorded[-1]["data"]["reason"]["cause"]["kind"] == "disposed"
    assert changed(place) == []
