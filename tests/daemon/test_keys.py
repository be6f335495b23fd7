"""turn/start with a key, as a client sends it that does not know whether its first request arrived."""

from __future__ import annotations

import pytest

from refold_client import RpcError
from tests.support.daemons import Place, kill, new_session

pytestmark = pytest.mark.anyio


async def test_the_same_request_again_gets_the_first_reply_also_after_a_kill(place: Place) -> None:
    async with place.daemon() as client:
        session = await new_session(client, place)
        first = await client.start_turn(session, "Which animal sleeps?", key="one")
        assert await client.start_turn(session, "Which animal sleeps?", key="one") == first
        await client.wait_turn(session, first["turn"])
        with pytest.raises(RpcError, match="another prompt"):
            await client.start_turn(session, "Something else", key="one")
        await kill(client)
    async with place.daemon() as client:
        await client.open_session(session)
        assert await client.start_turn(session, "Which animal sleeps?", key="one") == first
    recorded = await place.recorded(session)
    assert [event["type"] for event in recorded].count("input/accepted") == 1
