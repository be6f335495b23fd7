"""`meter/read` of a whole daemon: what the provider counted, what came since, warm and cold, for any model."""

from __future__ import annotations

from typing import Any

import pytest

from refold_client import Client, RpcError
from tests.support.chat_stream import DONE, call, calls, chunk, event, text
from tests.support.daemons import Json, Place, new_session
from tests.support.fake_provider import FakeProvider, answer

pytestmark = pytest.mark.anyio

WINDOWS = '[models."fake/small"]\ncontext_window = 8192\n[models."fake/large"]\ncontext_window = 65536\nchars_per_token = 1\n'
OPENAI = {"prompt_tokens": 2529, "completion_tokens": 16, "prompt_tokens_details": {"cached_tokens": 2400}}
DEEPSEEK = {"prompt_tokens": 2529, "completion_tokens": 16, "prompt_cache_hit_tokens": 2400, "prompt_cache_miss_tokens": 129}


def counted(*parts: bytes, finish: str = "stop", usage: Json | None = None) -> bytes:
    """Give a whole stream that ends with the provider's count."""
    told = b"" if usage is None else event({"id": "k", "object": "chat.completion.chunk", "choices": [], "usage": usage})
    return b"".join(parts) + chunk({}, finish) + told + DONE


async def meter(client: Client, session: str, **members: Any) -> Json:
    return await client.request("meter/read", {"session": session, **members})


@pytest.mark.parametrize("usage", [OPENAI, DEEPSEEK], ids=["A-12d", "A-12e"])
async def test_a12_right_after_a_call_the_total_is_the_provider_s_in_either_dialect_of_usage(place: Place, usage: Json) -> None:
    async with FakeProvider(answer(counted(text("It sleeps."), usage=usage))) as provider:
        place.provider(provider.base_url, WINDOWS)
        async with place.daemon() as client:
            session = await new_session(client, place)
            before = await meter(client, session)
            await client.prompt(session, "Which animal sleeps?")
            after = await meter(client, session)
        recorded = await place.recorded(session)
    assert (before["tokens"], before["nodes"], before["logRevision"]) == (0, [], 0)
    reply = next(one for one in recorded if one["type"] == "assistant/message")
    assert after["tokens"] == 2529 + 16
    assert after["anchor"] == {"turn": 1, "step": 1, "seq": reply["seq"], "tokens": 2545}
    assert (after["model"], after["window"], after["ratio"]) == ("fake/small", 8192, round(2545 / 8192, 6))
    assert [node["seq"] for node in after["nodes"]] == [one["seq"] for one in recorded if "surfaceOp" in one]
    assert sum(node["tokens"] for node in after["nodes"]) == after["surface"]
    assert after["logRevision"] == len(recorded)


async def test_results_of_tools_come_on_top_and_a_new_process_says_the_same(place: Place) -> None:
    asks = counted(calls(call(0, "c0", "read_file", '{"path":"animals.txt"}')), finish="tool_calls", usage=OPENAI)
    async with FakeProvider(answer(asks), answer(counted(text("It sleeps.")))) as provider:
        place.provider(provider.base_url, WINDOWS)
        async with place.daemon() as client:
            session = await new_session(client, place)
            await client.prompt(session, "Which animal sleeps?")
            warm = await meter(client, session)
        async with place.daemon() as client:
            cold = await meter(client, session)
            await client.request("session/open", {"session": session})
            resumed = await meter(client, session)
    *_, result, reply = warm["nodes"]
    assert warm["tokens"] == 2545 + result["tokens"] + reply["tokens"], "the second call reported nothing"
    assert cold == resumed == warm


async def test_another_model_has_its_own_window_and_density_and_no_part_in_the_count(place: Place) -> None:
    async with FakeProvider(answer(counted(text("It sleeps."), usage=OPENAI))) as provider:
        place.provider(provider.base_url, WINDOWS)
        async with place.daemon() as client:
            session = await new_session(client, place)
            await client.prompt(session, "Which animal sleeps?")
            small, large = await meter(client, session), await meter(client, session, model="fake/large")
            await client.request("session/configure", {"session": session, "patch": {"model": "fake/large"}})
            configured = await meter(client, session)
    assert "anchor" not in large
    assert large["tokens"] == large["header"] + large["surface"] > small["surface"] + small["header"]
    assert large["window"] == 65536
    assert configured == large | {"logRevision": configured["logRevision"]}, "the model that the session was given last"


async def test_a_model_whose_window_nobody_stated_is_refused_by_its_exact_name(place: Place) -> None:
    async with place.daemon() as client:
        session = await new_session(client, place)
        await client.prompt(session, "Where is the zebra?")
        assert (await meter(client, session))["model"] == "rehearsal/workspace"
        with pytest.raises(RpcError) as caught:
            await meter(client, session, model="")
        assert (caught.value.kind, caught.value.data["model"]) == ("model.unconfigured", ""), "a name, if an odd one"
        with pytest.raises(RpcError) as caught:
            await meter(client, session, model="local/unheard-of")
    data = caught.value.data
    assert data["kind"] == "model.unconfigured"
    assert (data["code"], data["model"]) == ("TOKEN_METER_MODEL_UNCONFIGURED", "local/unheard-of")


@pytest.mark.parametrize("windows", ["", WINDOWS], ids=["nobody stated it", "stated"])
async def test_an_opened_session_says_whether_the_window_of_the_model_is_unknown(place: Place, windows: str) -> None:
    async with FakeProvider(answer(counted(text("It sleeps.")))) as provider:
        place.provider(provider.base_url, windows, window=None)
        async with place.daemon() as client:
            session = await new_session(client, place)
            troubles = client.listen("session/trouble")
            opened = await client.request("session/open", {"session": session})
            await client.prompt(session, "Which animal sleeps?")
            unknown = windows == ""
            assert opened["status"].get("unmetered", False) is unknown
            if unknown:
                assert (await anext(troubles))["kind"] == "model.unconfigured"
