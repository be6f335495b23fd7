"""What a client does beside prompting: withdraw, inject, configure, rename, watch progress, status and phase. Queued and
steering prompts have `test_queued_prompts.py`, chunk policies `test_subscriptions.py`."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from refold_client import Client, RpcError
from tests.support.chat_stream import call, calls, chunk, reply, text
from tests.support.daemons import Json, Place, kill, new_session, text_so_far, types
from tests.support.fake_provider import FakeProvider, Gate, answer
from tests.support.notices import Wire
from tests.support.prefixes import without_opener

pytestmark = pytest.mark.anyio

PHASES = (sys.executable, "-m", "tests.support.phase_daemon")


async def running_turn(client: Client, session: str, said: str = "One", **more: Any) -> Json:
    """Start a turn and wait until it has said something."""
    events = await client.subscribe(session, after="tail")
    started = await client.start_turn(session, "first", **more)
    await text_so_far(events, said)
    return started


async def test_a_queued_prompt_that_is_withdrawn_never_runs(place: Place) -> None:
    gate = Gate()
    async with FakeProvider(answer(text("One"), gate, reply("."))) as provider:
        place.provider(provider.base_url)
        async with place.daemon() as client:
            session = await new_session(client, place)
            started = await running_turn(client, session)
            queued = await client.start_turn(session, "second", if_running="queue")
            seq = await client.withdraw(session, queued["input"])
            recorded = await place.recorded(session)
            assert recorded[seq]["data"] == {"input": queued["input"], "how": "withdrawn"}, "it was durable when answered"
            for gone in (queued["input"], started["input"]):
                with pytest.raises(RpcError) as raised:
                    await client.withdraw(session, gone)
                assert raised.value.kind == "input.unknown"
            gate.open()
            await client.wait_turn(session, 1)
            opened = await client.open_session(session)
            assert (opened["pendingInputs"], opened["status"]["status"]) == ([], "idle")
    assert types(await place.recorded(session)).count("turn/start") == 1


async def test_an_injection_is_told_to_the_model_with_the_next_prompt_and_asks_nothing(place: Place) -> None:
    async with FakeProvider(answer(reply("Fine."))) as provider:
        place.provider(provider.base_url)
        async with place.daemon() as client:
            session = await new_session(client, place)
            injected = await client.inject(session, "a.txt changed", kind="file", name="a.txt")
            assert injected["turn"] == 1
            assert types(await place.recorded(session))[-1] == "turn/end", "it was durable when answered"
            assert provider.requests == []
            await client.prompt(session, "go")
    messages = without_opener(json.loads(provider.requests[0].body)["messages"][1:])
    said = [message["content"] for message in messages if message["role"] == "user"]
    assert "a.txt changed" in str(said[0])
    assert "file:a.txt" in str(said[0])
    assert (await place.verify(session))["equal"] == 1


async def test_an_injection_into_a_running_turn_joins_it(place: Place) -> None:
    gate = Gate()
    listing = calls(call(0, "c0", "list_files", "{}")) + chunk({}, "tool_calls")
    async with FakeProvider(answer(text("One"), gate, listing), answer(reply("Two."))) as provider:
        place.provider(provider.base_url)
        async with place.daemon() as client:
            session = await new_session(client, place)
            await running_turn(client, session)
            assert "turn" not in await client.inject(session, "it rains")
            gate.open()
            await client.wait_turn(session, 1)
    assert b"it rains" in provider.requests[1].body
    assert types(await place.recorded(session)).count("turn/start") == 1
    assert (await place.verify(session))["equal"] == 2


async def test_settings_hold_from_the_next_request_on_and_are_there_again_after_a_kill(place: Place) -> None:
    async with FakeProvider(*[answer(reply("Fine."))] * 3) as provider:
        place.provider(provider.base_url)
        async with place.daemon() as client:
            session = await new_session(client, place)
            await client.prompt(session, "one")
            changed = await client.configure(session, model="fake/large", effort="high", limits={"steps": 7})
            assert changed["settings"] == {"model": "fake/large", "effort": "high", "limits": {"steps": 7}}
            recorded = await place.recorded(session)
            assert recorded[changed["seq"]]["data"] == changed["settings"], "it was durable when answered"
            await client.prompt(session, "two")
            await kill(client)
        async with place.daemon() as client:
            assert (await client.open_session(session))["info"]["model"] == "fake/large"
            await client.prompt(session, "three")
            more = await client.configure(session, effort="low")
            assert more["settings"] == {"model": "fake/large", "effort": "low", "limits": {"steps": 7}}
    asked = [json.loads(request.body)["model"] for request in provider.requests]
    assert asked == ["small", "large", "large"]
    assert (await place.verify(session))["equal"] == 3


async def test_the_limit_of_steps_that_a_client_sets_holds(place: Place) -> None:
    listing = calls(call(0, "c0", "list_files", "{}")) + chunk({}, "tool_calls")
    async with FakeProvider(answer(listing)) as provider:
        place.provider(provider.base_url)
        async with place.daemon() as client:
            session = await new_session(client, place)
            await client.configure(session, limits={"steps": 1})
            assert (await client.prompt(session, "go"))["data"]["reason"]["kind"] == "max-steps"


@pytest.mark.parametrize(
    ("patch", "kind"), [({"model": "nobody/small"}, "model.unconfigured"), ({}, None), ({"tools": "later"}, None)]
)
async def test_a_patch_that_cannot_hold_changes_nothing(place: Place, patch: Json, kind: str | None) -> None:
    async with place.daemon() as client:
        session = await new_session(client, place)
        with pytest.raises(RpcError) as raised:
            await client.request("session/configure", {"session": session, "patch": patch})
        assert raised.value.kind == kind
        assert kind is not None or raised.value.code == -32602
        assert (await client.open_session(session))["tail"] == -1


async def test_a_title_is_there_for_lists_and_for_the_next_daemon(place: Place) -> None:
    async with place.daemon() as client:
        session = await new_session(client, place)
        seq = await client.rename(session, "Zebras")
        assert (await place.recorded(session))[seq]["data"]["title"] == "Zebras"
        for wrong in ("", "x" * 201):
            with pytest.raises(RpcError) as raised:
                await client.rename(session, wrong)
            assert (raised.value.code, raised.value.data) == (-32602, {"path": "$.title"})
        await kill(client)
    async with place.daemon() as client:
        assert (await client.open_session(session, mode="read"))["info"]["title"] == "Zebras"
        rows: Any = (await client.list_sessions(text="zebra"))["sessions"]
        assert [row["session"] for row in rows] == [session]
        with pytest.raises(RpcError) as raised:
            await client.rename(session, "Horses")
        assert raised.value.kind == "session.readOnly", "whoever only reads changes nothing"


async def test_progress_begins_reports_and_ends_with_the_turn(place: Place) -> None:
    gate = Gate()
    listing = calls(call(0, "c0", "list_files", "{}")) + chunk({}, "tool_calls")
    async with FakeProvider(answer(text("One"), gate, listing), answer(reply("Two."))) as provider:
        place.provider(provider.base_url)
        async with place.daemon() as client:
            session = await new_session(client, place)
            told = client.listen("$/progress")
            await running_turn(client, session, token="t1")
            gate.open()
            await client.wait_turn(session, 1)
            values: list[Json] = []
            while not values or values[-1]["kind"] != "end":
                notice = await anext(told)
                assert notice["token"] == "t1"
                values.append(notice["value"])
    assert values[0] == {"kind": "begin", "title": "refold", "message": "turn", "cancellable": True}
    reports = [value["message"] for value in values[1:-1]]
    assert reports[-2:] == ["step 1: list_files", "step 2: waiting for the model"]
    assert values[-1] == {"kind": "end", "message": "completed"}


async def test_a_turn_is_interrupted_by_its_token_which_is_free_again_then(place: Place) -> None:
    async with FakeProvider(answer(text("One"), end="hang"), answer(reply("Two."))) as provider:
        place.provider(provider.base_url)
        async with place.daemon() as client:
            session = await new_session(client, place)
            told = client.listen("$/progress")
            await running_turn(client, session, token=7)
            await client.connection.notify("window/workDoneProgress/cancel", {"token": "7"})
            await client.connection.notify("window/workDoneProgress/cancel", {"token": 7})
            end = await client.wait_turn(session, 1)
            assert end["data"]["reason"] == {"kind": "aborted", "cause": {"kind": "user"}}
            while (await anext(told))["value"] != {"kind": "end", "message": "aborted"}:
                pass
            await client.start_turn(session, "again", token=7)
            await client.wait_turn(session, 2)


async def test_a_token_in_use_is_refused_and_nothing_is_accepted(place: Place) -> None:
    async with FakeProvider(answer(text("One"), end="hang")) as provider:
        place.provider(provider.base_url)
        async with place.daemon() as client:
            session = await new_session(client, place)
            await running_turn(client, session, token="t")
            tail = (await client.open_session(session))["tail"]
            for how in ("queue", "error"):
                with pytest.raises(RpcError) as raised:
                    await client.request(
                        "turn/start",
                        {
                            "session": session,
                            "content": [{"type": "text", "text": "more"}],
                            "ifRunning": how,
                            "workDoneToken": "t",
                        },
                    )
                assert (raised.value.code, raised.value.data) == (-32602, {"path": "$.workDoneToken"})
            assert (await client.open_session(session))["tail"] == tail
            with pytest.raises(RpcError) as raised:
                await client.start_turn(session, "more", token="other")
            assert raised.value.kind == "session.busy"
            queued = await client.start_turn(session, "more", if_running="queue", token="other")
            assert await client.withdraw(session, queued["input"]) > queued["seq"], "a refusal had freed its token"
            await client.interrupt(session, 1)


async def test_changes_of_status_are_told_once_each(place: Place) -> None:
    place.script({"text": "One."}, {"text": "Two."})
    async with place.daemon() as client:
        told = client.listen("sessions/changed")
        session = await new_session(client, place)
        for prompt in ("one", "two"):
            await client.prompt(session, prompt)
        notices = [await anext(told) for _ in range(4)]
        assert [notice["status"] for notice in notices] == ["running", "idle"] * 2
        assert {notice["session"] for notice in notices} == {session}
        events = await place.recorded(session)
    assert [events[notice["tail"]]["type"] for notice in notices[1::2]] == ["turn/end"] * 2


async def test_a_silent_turn_says_again_and_again_what_it_waits_for(place: Place) -> None:
    async with FakeProvider(answer(text("One"), end="hang")) as provider:
        place.provider(provider.base_url)
        async with place.daemon(PHASES) as client:
            wire, session = Wire(client), await new_session(client, place)
            notices = await wire.subscribe(session, -1)
            await client.start_turn(session, "go")
            await notices.until(lambda told: told.all[-3:].count(told.all[-1]) == 3 if len(told.all) > 3 else False)
            silent = notices.all[-1]
            assert (silent["events"], silent["phase"], silent["prev"]) == ([], "provider", notices.last)
            await client.interrupt(session, 1)
            await notices.until(lambda told: told.events[-1]["type"] == "turn/end" and told.durable == told.last)
