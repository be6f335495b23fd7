"""The store's folder is removed under a running daemon: it says so and keeps no promise that the disk cannot keep."""

from __future__ import annotations

import shutil

import pytest

from refold_client import RpcError
from tests.support.chat_stream import reply
from tests.support.daemons import Place, new_session
from tests.support.fake_provider import FakeProvider, answer

pytestmark = pytest.mark.anyio


async def test_a_prompt_is_refused_and_nothing_is_sent_once_the_store_is_gone(place: Place) -> None:
    async with FakeProvider(answer(reply("One."))) as provider:
        place.provider(provider.base_url)
        async with place.daemon() as client:
            session, other = await new_session(client, place), await new_session(client, place)
            troubles = client.listen("session/trouble")
            await client.prompt(session, "go")
            shutil.rmtree(place.store)
            with pytest.raises(RpcError, match="was removed, moved or replaced") as raised:
                await client.start_turn(session, "go on")
            assert raised.value.kind == "log.unwritable"
            told = [await anext(troubles), await anext(troubles)]
            assert {(one["session"], one["kind"]) for one in told} == {
                (session, "log.unwritable"),
                (other, "log.unwritable"),
            }
            for method, params in (
                ("session/open", {"cwd": str(place.workspace)}),
                ("turn/start", {"session": other, "content": [{"type": "text", "text": "go"}]}),
            ):
                with pytest.raises(RpcError) as raised:
                    await client.request(method, params)
                assert raised.value.kind == "log.unwritable"
            assert len(provider.requests) == 1
    assert not (place.store / "data.mdb").exists()
