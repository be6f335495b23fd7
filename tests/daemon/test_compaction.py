"""Compaction through whole daemons: what the provider gets, what clients are told, what other processes prove."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from refold_client import Client, RpcError
from tests.support.chat_stream import call, calls, chunk, reply
from tests.support.daemons import Place, kill, new_session, types, until
from tests.support.fake_provider import Answer, FakeProvider, Gate, answer

pytestmark = pytest.mark.anyio

STORY = "It is a long story. " * 60
WINDOW = '[models."fake/small"]\ncontext_window = 100000\nchars_per_token = 1'


async def told(client: Client, place: Place) -> str:
    """A session with two long turns."""
    session = await new_session(client, place)
    await client.prompt(session, "one")
    await client.prompt(session, "two")
    return session


def messages(body: bytes) -> list[dict[str, Any]]:
    return json.loads(body)["messages"]


async def test_a_compaction_on_request_is_answered_when_its_summary_is_on_disk(place: Place) -> None:
    stories = (answer(reply(STORY)), answer(reply(STORY)))
    async with FakeProvider(*stories, answer(reply("Two stories.")), answer(reply("fine"))) as provider:
        place.provider(provider.base_url, WINDOW)
        async with place.daemon() as client:
            session = await told(client, place)
            events = await client.subscribe(session, after="tail")
            done = await client.compact(session, "Keep the names.")
            recorded = await place.recorded(session)
            assert recorded[done["seq"]]["type"] == "user/message"
            assert recorded[-1]["type"] == "compact/end"
            assert types(await until(events, "compact/end")) == types(recorded[-5:])
            assert done["tokens"] < done["shadowedTokens"]
            before, asked = messages(provider.requests[1].body), messages(provider.requests[2].body)
            assert asked[: len(before)] == before
            assert "Keep the names." in asked[-1]["content"]
            await client.prompt(session, "three")
            history = [one["content"] for one in messages(provider.requests[3].body) if one["role"] == "user"]
            assert len(history) == 3, "the prefix, the summary, the prompt"
            assert "Two stories." in history[1]
            rebuilt = await client.request("request/rebuild", {"session": session, "compact": recorded[-5]["seq"]})
            assert (rebuilt["body"].encode(), rebuilt["verdict"]) == (provider.requests[2].body, "equal")
            shown = await asyncio.to_thread(place.refold, "rebuild", session, f"compact:{recorded[-5]['seq']}")
            assert shown.stdout.encode() == provider.requests[2].body
            report = await place.verify(session)
            assert report["requests"] == report["equal"] == 4
            transcript = (await client.read(session, "transcript"))["entries"]
            kinds = [entry["kind"] for entry in transcript]
            assert kinds == ["user", "assistant", "user", "assistant", "compaction", "user", "assistant"]
            cached = await asyncio.to_thread(place.refold, "cache", session)
            assert "compaction" in cached.stdout


async def test_prompts_that_come_while_the_history_is_compacted_wait_for_its_end(place: Place) -> None:
    gate = Gate()
    stories = (answer(reply(STORY)), answer(reply(STORY)))
    async with FakeProvider(*stories, answer(gate, reply("Two stories.")), answer(reply("fine"))) as provider:
        place.provider(provider.base_url, WINDOW)
        async with place.daemon() as client:
            session = await told(client, place)
            compacting = asyncio.ensure_future(client.compact(session))
            await asyncio.to_thread(gate.reached.wait)
            assert (await client.read(session, "status"))["status"]["status"] == "compacting"
            with pytest.raises(RpcError) as raised:
                await client.start_turn(session, "now")
            assert raised.value.kind == "session.busy"
            with pytest.raises(RpcError) as raised:
                await client.compact(session)
            assert raised.value.kind == "session.busy"
            queued = await client.start_turn(session, "then", if_running="queue")
            assert "turn" not in queued
            gate.open()
            await compacting
            await client.wait_turn(session, input_id=queued["input"])
            assert [one["role"] for one in messages(provider.requests[-1].body)][-2:] == ["user", "user"]
            await place.verify(session)


async def test_a_compaction_that_is_cancelled_changes_nothing_and_says_so(place: Place) -> None:
    gate = Gate()
    stories = (answer(reply(STORY)), answer(reply(STORY)))
    async with FakeProvider(*stories, answer(gate, reply("no")), answer(reply("fine"))) as provider:
        place.provider(provider.base_url, WINDOW)
        async with place.daemon() as client:
            session = await told(client, place)
            compacting = asyncio.ensure_future(client.compact(session, token="t1"))
            await asyncio.to_thread(gate.reached.wait)
            await client.connection.notify("window/workDoneProgress/cancel", {"token": "t1"})
            with pytest.raises(RpcError) as raised:
                await compacting
            assert raised.value.code == -32800
            end = (await place.recorded(session))[-1]
            assert end["type"] == "compact/end"
            assert end["data"]["error"]["kind"] == "compaction.failed"
            await client.prompt(session, "three")
            assert len(messages(provider.requests[-1].body)) == len(messages(provider.requests[1].body)) + 2
            await place.verify(session)


async def test_a_session_that_is_closed_with_cancel_leaves_no_compaction_open(place: Place) -> None:
    gate = Gate()
    async with FakeProvider(answer(reply(STORY)), answer(reply(STORY)), answer(gate, reply("no"))) as provider:
        place.provider(provider.base_url, WINDOW)
        async with place.daemon() as client:
            session = await told(client, place)
            compacting = asyncio.ensure_future(client.compact(session))
            await asyncio.to_thread(gate.reached.wait)
            with pytest.raises(RpcError) as raised:
                await client.close_session(session)
            assert raised.value.kind == "session.busy"
            await client.close_session(session, cancel=True)
            with pytest.raises(RpcError) as raised:
                await compacting
            assert raised.value.kind == "session.busy"
            assert (await place.recorded(session))[-1]["type"] == "compact/end"


async def test_a_kill_inside_a_compaction_locks_nothing_and_changes_nothing(place: Place) -> None:
    """Must show 4: `kill -9` while the summary is written."""
    gate = Gate()
    stories = (answer(reply(STORY)), answer(reply(STORY)))
    async with FakeProvider(
        *stories, answer(gate, reply("no")), answer(reply("Two stories.")), answer(reply("ok"))
    ) as provider:
        place.provider(provider.base_url, WINDOW)
        async with place.daemon() as client:
            session = await told(client, place)
            compacting = asyncio.ensure_future(client.compact(session))
            await asyncio.to_thread(gate.reached.wait)
            await kill(client)
            await asyncio.wait((compacting,))
            assert compacting.exception() is not None
        async with place.daemon() as client:
            opened = await client.open_session(session)
            assert opened["status"]["status"] == "idle"
            recorded = await place.recorded(session)
            assert recorded[-1]["type"] == "compact/end"
            assert "interrupted" in recorded[-1]["data"]["error"]["message"]
            await client.compact(session)
            await client.prompt(session, "three")
            assert "Two stories." in messages(provider.requests[-1].body)[2]["content"]
            await place.verify(session)


OVERFLOWS = (
    '{"error":{"code":400,"message":"the request exceeds the available context size","type":"exceed_context_size_error",'
    '"n_prompt_tokens":9000,"n_ctx":8192}}',
    '{"error":{"message":"This model\'s maximum context length is 8192 tokens","type":"invalid_request_error",'
    '"param":"messages","code":"context_length_exceeded"}}',
    '{"error":{"message":"prompt is too long: 9000 tokens > 8192 maximum","type":"invalid_request_error"}}',
)


@pytest.mark.parametrize("words", OVERFLOWS, ids=["llama.cpp", "a code", "prose"])
async def test_an_overflow_at_a_resumed_sessions_first_request_is_compacted_once(place: Place, words: str) -> None:
    """Must show 3."""
    refusal = Answer((words.encode(),), 400, (("content-type", "application/json"),))
    stories = (answer(reply(STORY)), answer(reply(STORY)))
    async with FakeProvider(*stories, refusal, answer(reply("Two stories.")), answer(reply("fine"))) as provider:
        place.provider(provider.base_url, WINDOW)
        async with place.daemon() as client:
            session = await told(client, place)
        async with place.daemon() as client:
            await client.open_session(session)
            end = await client.prompt(session, "three")
            assert end["data"]["reason"] == {"kind": "completed"}
            outcomes = [
                event["data"].get("outcome", "ok") for event in await place.recorded(session) if event["type"] == "step/end"
            ]
            assert outcomes == ["ok", "ok", "overflow", "ok"]
            provider.play([refusal, answer(reply("x")), refusal])
            end = await client.prompt(session, STORY * 3)
            error = end["data"]["reason"]["error"]
            assert error["kind"] == "provider.contextOverflow"
            assert "8192" in error["message"] or "8,192" in error["message"]
            assert "compacted once in this turn" in error["message"]
            await place.verify(session)


async def test_the_command_compacts_a_session_and_tells_what_became_of_it(place: Place) -> None:
    stories = (answer(reply(STORY)), answer(reply(STORY)))
    async with FakeProvider(*stories, answer(reply("Two stories.")), answer(reply(" ")), answer(reply(" "))) as provider:
        place.provider(provider.base_url, WINDOW)
        async with place.daemon() as client:
            session = await told(client, place)
        done = await asyncio.to_thread(place.refold, "compact", session, "--instructions", "Keep the names.")
        assert (done.returncode, done.stderr) == (0, "")
        assert "stands for the history" in done.stdout
        assert "Keep the names." in messages(provider.requests[2].body)[-1]["content"]
        again = await asyncio.to_thread(place.refold, "compact", session)
        assert again.returncode == 4
        assert "compaction.failed" in again.stderr


async def test_the_command_tells_a_program_what_became_of_a_session_as_one_object(place: Place) -> None:
    stories = (answer(reply(STORY)), answer(reply(STORY)))
    async with FakeProvider(*stories, answer(reply("Two stories.")), answer(reply(" ")), answer(reply(" "))) as provider:
        place.provider(provider.base_url, WINDOW)
        async with place.daemon() as client:
            session = await told(client, place)
        done = await asyncio.to_thread(place.refold, "compact", session, "--json")
        value, recorded = json.loads(done.stdout), await place.recorded(session)
        assert (done.returncode, done.stderr, set(value)) == (0, "", {"session", "seq", "tokens", "shadowedTokens"})
        assert (value["session"], recorded[value["seq"]]["type"]) == (session, "user/message")
        assert 0 < value["tokens"] < value["shadowedTokens"]
        again = await asyncio.to_thread(place.refold, "compact", session, "--json")
        assert (again.returncode, again.stdout) == (4, "")
        assert "compaction.failed" in again.stderr


async def test_a_summary_call_gets_the_tools_and_a_call_of_one_is_no_summary(place: Place) -> None:
    called = answer(calls(call(0, "c0", "read_file", '{"path":"animals.txt"}')), chunk({}, "tool_calls"))
    async with FakeProvider(answer(reply(STORY)), answer(reply(STORY)), called, called) as provider:
        place.provider(provider.base_url, WINDOW)
        async with place.daemon() as client:
            session = await told(client, place)
            with pytest.raises(RpcError) as raised:
                await client.compact(session)
            assert raised.value.kind == "compaction.failed"
            assert "called a tool" in raised.value.message
            assert json.loads(provider.requests[2].body)["tools"] == json.loads(provider.requests[1].body)["tools"]
            assert provider.requests[2].body == provider.requests[3].body, "one extra attempt, of the same bytes"
            found = [event["type"] for event in (await place.recorded(session))[-4:]]
            assert found == [
                "compact/start",
                "request/sent",
                "request/sent",
                "compact/end",
            ]
            await place.verify(session)


async def test_a_session_has_its_own_settings_of_compaction_and_a_wrong_one_is_told_with_its_reason(place: Place) -> None:
    """`auto` is false by `session/open`, then true by `session/configure`: the first prompt after that makes room."""
    stories = [answer(reply(STORY))] * 3
    window = '[models."fake/small"]\ncontext_window = 20000\nchars_per_token = 1\n[compaction]\nthreshold_ratio = 0.17\n'
    async with FakeProvider(*stories, answer(reply("Stories.")), answer(reply("fine"))) as provider:
        place.provider(provider.base_url, window + "retain_tokens = 500")
        async with place.daemon() as client:
            with pytest.raises(RpcError, match=r"retainTokens expects less than 3400, .* it is 4000") as caught:
                await new_session(client, place, compaction={"retainTokens": 4000})
            assert caught.value.kind == "config.invalid"
            session = await new_session(client, place, compaction={"auto": False})
            for prompt in ("one", "two", "three"):
                await client.prompt(session, prompt)
            recorded = await place.recorded(session)
            assert "compact/start" not in types(recorded)
            with pytest.raises(RpcError, match="retainTokens expects less than"):
                await client.configure(session, compaction={"retainTokens": 19_999})
            assert await place.recorded(session) == recorded
            changed = await client.configure(session, compaction={"auto": True})
            assert changed["settings"] == {"compaction": {"auto": True}}
            await client.prompt(session, "four")
            starts = [event["data"] for event in await place.recorded(session) if event["type"] == "compact/start"]
            assert [start["trigger"] for start in starts] == ["pressure"]
            report = await place.verify(session)
            assert report["requests"] == report["equal"] == 5
