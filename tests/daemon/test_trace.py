"""`$/setTrace` and `$/logTrace`: told to a client that asks, and to nobody else."""

from __future__ import annotations

import json

import pytest

from refold_client import RpcError
from tests.support.daemons import Place, new_session

pytestmark = pytest.mark.anyio


async def test_a_client_that_asks_is_told_what_was_answered_and_one_that_does_not_is_not(place: Place) -> None:
    async with place.daemon() as client:
        told = client.listen("$/logTrace")
        session = await new_session(client, place)
        await client.connection.notify("$/setTrace", {"value": "messages"})
        await client.read(session, "status")
        first = await anext(told)
        assert first["message"].startswith("session/read: answered after ")
        assert "verbose" not in first
        await client.connection.notify("$/setTrace", {"value": "verbose"})
        with pytest.raises(RpcError):
            await client.wait_turn(session, 9)
        second = await anext(told)
        assert second["message"].startswith("turn/wait: failed after ")
        assert json.loads(second["verbose"]) == {"session": session, "turn": 9}
        await client.connection.notify("$/setTrace", {"value": "off"})
        await client.read(session, "status")
    assert [one async for one in told] == []
