"""A client that does not read its replies costs bounded memory, and what can end something is still served."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from refold_protocol.rpc.framing import encode_frame
from refold_protocol.rpc.initialize import MAX_UNSENT_REPLIES, MAX_UNSENT_REPLY_BYTES
from refold_server.rpc.connection import URGENT_BELOW_REPLIES
from refold_server.rpc.dispatch import BURST, FULL_BYTES, MESSAGE_COST, RequestIntake
from refold_server.rpc.stdio import Hooks
from tests.support.conversations import Conversation, conversation
from tests.support.memory_transport import MemoryTransport

pytestmark = pytest.mark.anyio


def typed(name: str, text: str = "") -> Any:
    return {"jsonrpc": "2.0", "id": name, "method": "toy/typed", "params": {"text": text or name}}


async def flood(talk: Conversation, count: int) -> None:
    """Send more requests than may be answered, and wait until the endpoint answers no more."""
    talk.transport.stop_reading()
    talk.put(*(typed(f"flood {number}") for number in range(count)))
    await talk.until(lambda: talk.transport.unsent >= MAX_UNSENT_REPLIES)


async def test_replies_that_lie_unread_stop_the_dispatch_of_requests_and_none_is_lost() -> None:
    async with conversation() as talk:
        await flood(talk, 3000)
        talk.put(typed("more"))
        await talk.interrupt()
        assert MAX_UNSENT_REPLIES <= len(talk.toy.began) <= MAX_UNSENT_REPLIES + BURST
        talk.transport.read_on()
        await talk.reply("more")
        answered = [message["id"] for message in talk.messages if str(message["id"]).startswith("flood")]
        assert answered == [f"flood {number}" for number in range(3000)]
        assert talk.toy.began == [*answered, "more"]


async def test_so_many_bytes_of_replies_do_the_same() -> None:
    async with conversation() as talk:
        talk.transport.stop_reading()
        one = {"jsonrpc": "2.0", "method": "toy/large", "params": {"text": "x" * 1024, "times": 1024}}
        talk.put(*(one | {"id": number} for number in range(100, 200)))
        await talk.until(lambda: talk.transport.unsent_bytes >= MAX_UNSENT_REPLY_BYTES)
        await talk.interrupt()
        assert talk.transport.unsent_bytes < MAX_UNSENT_REPLY_BYTES + (BURST + 1) * (1 << 20)
        talk.transport.read_on()
        for number in range(100, 200):
            assert len((await talk.reply(number))["result"]) == 1 << 20


async def test_wrong_messages_of_a_client_that_does_not_read_wait_too() -> None:
    async with conversation() as talk:
        talk.transport.stop_reading()
        talk.put(*[b"[]"] * 5000)
        await talk.until(lambda: talk.transport.unsent >= MAX_UNSENT_REPLIES)
        await talk.interrupt()
        assert talk.transport.unsent <= MAX_UNSENT_REPLIES + BURST
        talk.transport.read_on()
        for _ in range(5000):
            await talk.reply(None)


async def test_a_running_request_is_cancelled_although_replies_lie_unread() -> None:
    async with conversation() as talk:
        waiting = talk.request("toy/wait")
        await talk.until(lambda: talk.toy.began == ["wait"])
        await flood(talk, 2000)
        talk.notify("$/cancelRequest", {"id": waiting})
        await talk.until(lambda: talk.toy.cancelled == 1)
        talk.transport.read_on()
        assert (await talk.reply(waiting))["error"]["code"] == -32800


async def test_a_request_that_waits_for_its_turn_can_be_cancelled_and_never_begins() -> None:
    async with conversation() as talk:
        await flood(talk, 2000)
        talk.notify("$/cancelRequest", {"id": "flood 1999"})
        await talk.interrupt()
        talk.transport.read_on()
        assert (await talk.reply("flood 1999"))["error"]["code"] == -32800
        assert "flood 1999" not in talk.toy.began


async def test_an_answer_to_us_is_taken_although_replies_lie_unread() -> None:
    async with conversation() as talk:
        talk.request("toy/ask", request_id="asked")
        question = await talk.message(lambda message: message.get("method") == "client/ask")
        await flood(talk, 2000)
        unsent = talk.transport.unsent
        talk.put({"jsonrpc": "2.0", "id": question["id"], "result": 1})
        await talk.until(lambda: talk.transport.unsent > unsent)


async def test_shutdown_and_exit_are_served_although_replies_lie_unread() -> None:
    async with conversation() as talk:
        await flood(talk, 2000)
        talk.request("shutdown")
        talk.notify("exit")
        await talk.until(lambda: talk.toy.ended == ["exit"])
        talk.transport.hang_up()
        assert await talk.task == 0


async def test_d01_the_end_of_the_stream_is_seen_although_replies_lie_unread() -> None:
    async with conversation() as talk:
        await flood(talk, 2000)
        talk.transport.end()
        await talk.until(lambda: talk.toy.ended == ["inputEnded"])


async def test_requests_that_wait_are_bounded_in_bytes_and_all_answered_in_the_end() -> None:
    async with conversation() as talk:
        await flood(talk, 1100)
        count = FULL_BYTES // (1 << 20) + 20
        for number in range(count):
            talk.put(typed(f"large {number}", "x" * (1 << 20)))
        await talk.until(lambda: talk.transport.paused)
        talk.transport.read_on()
        for number in range(count):
            assert "result" in await talk.reply(f"large {number}")
        assert not talk.transport.paused


async def test_reading_stops_while_too_much_waits() -> None:
    transport, taken = MemoryTransport(), list[str]()
    intake = RequestIntake(transport, full_bytes=3 * MESSAGE_COST)
    transport.stop_reading()
    for _ in range(MAX_UNSENT_REPLIES):
        transport.send(b"")
    transport.start(Hooks(lambda data: None, intake.pump, lambda: None))
    for name, size in (("a", 0), ("b", MESSAGE_COST)):
        intake.add(partial(taken.append, name), size)
        intake.pump()
    assert (transport.paused, taken) == (True, [])
    transport.read_on()
    while transport.paused:  # noqa: ASYNC110  # each turn of the loop takes one step
        await asyncio.sleep(0)
    assert taken == ["a", "b"]


async def test_many_messages_at_once_are_taken_in_bursts() -> None:
    """So that a flood neither starves the loop nor starts more handlers at once than it takes replies."""
    async with conversation() as talk:
        waits = [encode_frame(b'{"jsonrpc":"2.0","id":%d,"method":"toy/wait"}' % number) for number in range(90)]
        talk.transport.put(b"".join(waits[:50]), *waits[50:])
        most, seen = 0, 0
        while seen < 90:
            await talk.turn()
            most, seen = max(most, len(talk.toy.began) - seen), len(talk.toy.began)
        assert most <= BURST


async def queued(talk: Conversation, count: int = 3000) -> None:
    """Requests that all wait for their turn, after one that runs."""
    talk.request("toy/wait", request_id="waits")
    await talk.until(lambda: talk.toy.began == ["wait"])
    talk.put(*(typed(f"queued {number}") for number in range(count)))


async def test_an_interrupt_is_served_before_requests_that_wait_for_their_turn() -> None:
    async with conversation() as talk:
        await queued(talk)
        await talk.interrupt()
        assert len(talk.toy.began) <= 4 * BURST
        await talk.reply("waits")
        await talk.reply("queued 2999")


async def test_a_cancelled_request_is_answered_before_those_that_waited_longer() -> None:
    async with conversation() as talk:
        await queued(talk)
        talk.notify("$/cancelRequest", {"id": "queued 2999"})
        assert (await talk.reply("queued 2999"))["error"]["code"] == -32800
        assert len(talk.toy.began) <= 4 * BURST
        await talk.reply("queued 2998")
        assert "queued 2999" not in talk.toy.began
        talk.toy.released.set()


async def test_shutdown_and_exit_are_served_before_requests_that_wait_for_their_turn() -> None:
    async with conversation() as talk:
        await queued(talk)
        talk.request("shutdown", request_id="bye")
        assert (await talk.reply("bye"))["result"] is None
        talk.notify("exit")
        await talk.until(lambda: talk.toy.ended == ["exit"])
        assert len(talk.toy.began) <= 8 * BURST
        talk.toy.released.set()
        assert await talk.task == 0


async def test_requests_that_come_together_with_the_end_are_taken_before_it() -> None:
    async with conversation() as talk:
        shutdown, leave = {"jsonrpc": "2.0", "id": "bye", "method": "shutdown"}, {"jsonrpc": "2.0", "method": "exit"}
        talk.put(*(typed(f"{number}") for number in range(10)), shutdown, leave)
        for number in range(10):
            assert "result" in await talk.reply(f"{number}")
        assert await talk.task == 0


async def test_a_flood_of_interrupts_whose_replies_lie_unread_is_bounded_too() -> None:
    async with conversation() as talk:
        talk.transport.stop_reading()
        interrupt = {"jsonrpc": "2.0", "method": "turn/interrupt", "params": {"session": "s", "turn": 1}}
        for first in range(0, 9000, 100):
            talk.put(*(interrupt | {"id": number} for number in range(first, first + 100)))
            await talk.turn()
        for _ in range(20):
            await talk.turn()
        assert URGENT_BELOW_REPLIES <= talk.transport.unsent < URGENT_BELOW_REPLIES + 200
        talk.transport.read_on()
        await talk.reply(8999)
