"""The headless client over real pipes: it talks to a real daemon, and fails loudly on what nobody asked for."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from refold_client import Client, ConnectionEndedError, Cursor, GapError, RpcError, UnclaimedMessageError, spawn
from tests.support.processes import TOY

pytestmark = pytest.mark.anyio

EVENTS: Any = {"jsonrpc": "2.0", "method": "session/events"}


def scripted(**script: Any) -> Sequence[str]:
    return (sys.executable, "-m", "tests.support.scripted_daemon", json.dumps(script))


async def test_a_connection_is_begun_and_ended_in_good_order() -> None:
    async with spawn(TOY) as client:
        assert client.server["serverInfo"]["name"] == "refold"
        assert await client.request("toy/echo", {"class": 1}) == {"class": 1}
        assert await client.close() == 0


async def test_a_block_that_ends_well_closes_the_daemon() -> None:
    async with spawn(TOY) as client:
        pass
    assert client.connection.process.returncode == 0


async def test_a_block_that_fails_kills_the_daemon_and_keeps_its_error() -> None:
    clients: list[Client] = []

    async def fail() -> None:
        async with spawn(TOY) as client:
            clients.append(client)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    assert clients[0].connection.process.returncode == -9


async def test_errors_carry_code_kind_and_data() -> None:
    async with spawn(TOY) as client:
        with pytest.raises(RpcError, match="a turn runs") as raised:
            await client.request("toy/busy")
        assert (raised.value.code, raised.value.kind) == (-31000, "session.busy")
        assert raised.value.data["seq"] == 4
        with pytest.raises(RpcError) as raised:
            await client.request("no/such")
        assert (raised.value.code, raised.value.kind) == (-32601, None)


async def test_options_reach_the_daemon_and_wrong_ones_are_raised() -> None:
    async with spawn(TOY, options={"onDisconnect": "cancel"}):
        pass
    with pytest.raises(RpcError, match=r"initializationOptions\.modle"):
        async with spawn(TOY, options={"modle": "x"}):
            pass


async def test_a_subscription_gives_each_event_once_in_order() -> None:
    async with spawn(TOY) as client:
        following = await client.subscribe("s", after=2)
        seqs: list[int] = []
        async for event in following:
            seqs.append(event["seq"])
            if event["seq"] == 9:
                break
        assert seqs == list(range(3, 10))
        assert (following.tail, following.durable, following.caught_up) == (9, 9, True)


async def test_a_cursor_goes_on_in_another_connection() -> None:
    async with spawn(TOY) as client:
        following = await client.subscribe("s")
        for _ in range(4):
            await anext(following)
        cursor = following.cursor
    assert cursor == Cursor("s", 3, None)
    async with spawn(TOY) as client:
        assert (await anext(await client.subscribe("s", after=cursor)))["seq"] == 4


async def test_a_cancelled_call_is_cancelled_at_the_daemon_and_its_reply_is_claimed() -> None:
    async with spawn(TOY) as client:
        waiting = asyncio.create_task(client.request("toy/wait"))
        while (await client.request("toy/seen"))["began"] != ["wait"]:
            pass
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        while (await client.request("toy/seen"))["cancelled"] != 1:
            pass


async def test_a_request_of_the_daemon_is_answered_by_its_handler() -> None:
    async def answer(params: Any) -> Any:
        return {"answered": params["question"]}

    async with spawn(TOY) as client:
        client.connection.on_request("client/ask", answer)
        assert await client.request("toy/ask") == {"answered": 1}


async def test_a_request_of_the_daemon_that_nobody_handles_is_refused_and_raised() -> None:
    async with spawn(TOY) as client:
        with pytest.raises(RpcError):
            await client.request("toy/ask")
        with pytest.raises(UnclaimedMessageError, match="client/ask"):
            await client.close()


async def test_a_handler_that_fails_is_answered_and_raised() -> None:
    async def fails(params: Any) -> Any:
        raise ZeroDivisionError(params)

    async with spawn(TOY) as client:
        client.connection.on_request("client/ask", fails)
        with pytest.raises(RpcError):
            await client.request("toy/ask")
        with pytest.raises(UnclaimedMessageError, match="question"):
            await client.close()


STRAY: dict[str, Any] = {
    "an unknown notification": {"jsonrpc": "2.0", "method": "stray/note", "params": {}},
    "events of no subscription": EVENTS | {"params": {"subscription": 7, "events": []}},
    "a reply to nothing": {"jsonrpc": "2.0", "id": 99, "result": 1},
    "a reply with a text id": {"jsonrpc": "2.0", "id": "1", "result": 1},
    "an error without an id": {"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "x"}},
    "a broken frame": "Content-Length: x\r\n\r\n",
    "half a frame": 'Content-Length: 10\r\n\r\n{"a"',
}


@pytest.mark.parametrize("stray", STRAY.values(), ids=STRAY)
async def test_what_nobody_claims_is_raised_at_the_close(stray: Any) -> None:
    with pytest.raises(UnclaimedMessageError):
        async with spawn(scripted(then=[stray], die=stray == STRAY["half a frame"])) as client:
            await client.request("x")


async def keep_calling(client: Client) -> None:
    while True:
        await client.request("x")


async def test_what_nobody_claims_is_raised_at_the_next_call_once() -> None:
    async with spawn(scripted(then=[STRAY["an unknown notification"]])) as client:
        await client.request("x")
        with pytest.raises(UnclaimedMessageError, match="stray/note"):
            await keep_calling(client)


async def test_a_notification_with_a_handler_is_claimed() -> None:
    seen: list[Any] = []
    async with spawn(scripted(then=[STRAY["an unknown notification"] | {"params": 5}])) as client:
        client.connection.on_notification("stray/note", seen.append)
        await client.request("x")
    assert seen == [5]


async def test_a_gap_in_the_events_is_raised() -> None:
    reply = {"subscription": 1, "tail": 5, "durable": 5}
    gap = EVENTS | {"params": {**reply, "events": [{"seq": 4}], "prev": 3}}
    async with spawn(scripted(result=reply, then=[gap])) as client:
        following = await client.subscribe("s", after=1)
        with pytest.raises(GapError):
            await anext(following)


async def test_a_daemon_that_dies_fails_the_call_and_the_subscriptions() -> None:
    async with spawn(scripted(answer=False, die=True)) as client:
        with pytest.raises(ConnectionEndedError):
            await client.request("x")
        with pytest.raises(ConnectionEndedError):
            await client.request("y")
        await client.connection.process.wait()
        assert client.connection.process.returncode == 9


async def test_a_program_that_is_no_daemon_is_an_error() -> None:
    with pytest.raises(ConnectionEndedError):
        async with spawn((sys.executable, "-c", "pass")):
            pass


async def said(tmp_path: Path, use: Any) -> list[Any]:
    """Give what the daemon read while `use` talked to it, requests of the connection itself left out."""
    with (tmp_path / "said").open("wb") as file:
        async with spawn(scripted(result={"durable": 3, "reason": None, "input": "i"}), stderr=file) as client:
            await use(client)
    lines = (tmp_path / "said").read_text().split("\n")[:-1]
    messages = [json.loads(line) for line in lines]
    return [[one["method"], one["params"]] for one in messages if "/" in one["method"]]


async def test_each_call_says_what_the_protocol_expects(tmp_path: Path) -> None:
    async def use(client: Client) -> None:
        await client.open_session(cwd=Path("/w"), model="a/b")
        await client.open_session("s", mode="read")
        await client.prompt("s", "hello")
        await client.wait_turn("s", 3)
        assert await client.interrupt("s", 3) is None
        assert await client.flush("s", 7) == 3
        await client.read("s", "events", at=4, page={"limit": 2})
        await client.close_session("s", cancel=True)

    assert await said(tmp_path, use) == [
        ["session/open", {"cwd": "/w", "model": "a/b", "mode": "write"}],
        ["session/open", {"session": "s", "mode": "read"}],
        ["turn/start", {"session": "s", "content": [{"type": "text", "text": "hello"}]}],
        ["turn/wait", {"session": "s", "input": "i"}],
        ["turn/wait", {"session": "s", "turn": 3}],
        ["turn/interrupt", {"session": "s", "turn": 3}],
        ["session/flush", {"session": "s", "upTo": 7}],
        ["session/read", {"session": "s", "view": "events", "at": 4, "page": {"limit": 2}}],
        ["session/close", {"session": "s", "cancel": True}],
    ]


def test_the_package_is_usable_without_the_server() -> None:
    program = "import sys, refold_client; sys.exit(any(name.startswith('refold_server') for name in sys.modules))"
    subprocess.run([sys.executable, "-c", program], check=True)
