"""The endpoint: every request gets exactly one reply, whatever is wrong with it or happens to it. Cases D-04 and D-05."""

from __future__ import annotations

import json
from typing import Any

import pytest

from refold_protocol.rpc.framing import DEFAULT_FRAME_LIMIT, encode_frame
from tests.support.conversations import Conversation, conversation

pytestmark = pytest.mark.anyio

INITIALIZE: Any = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}


def code(reply: Any) -> int:
    return reply["error"]["code"]


async def test_d04_before_initialize_requests_are_refused_and_notifications_dropped() -> None:
    async with conversation(initialized=False) as talk:
        talk.notify("toy/note", {"text": "too early"})
        assert code(await talk.reply(talk.request("toy/typed", {"text": "a"}))) == -32002
        await talk.call("initialize", {})
        talk.notify("toy/note", {"text": "in time"})
        assert (await talk.call("toy/seen"))["notes"] == ["in time"]


async def test_d04_initialize_twice_is_refused() -> None:
    async with conversation() as talk:
        assert code(await talk.reply(talk.request("initialize", {}))) == -32600
        assert len(talk.toy.initialized) == 1


async def test_initialize_with_wrong_params_is_refused_and_may_be_tried_again() -> None:
    async with conversation(initialized=False) as talk:
        wrong = await talk.reply(talk.request("initialize", {"initializationOptions": {"modle": "a/b"}}))
        assert code(wrong) == -32602
        assert wrong["error"]["data"]["path"] == "$.initializationOptions.modle"
        assert "capabilities" in await talk.call("initialize", {"processId": None})


async def test_a_request_above_the_bound_is_refused_until_one_was_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("refold_server.rpc.connection.MAX_RUNNING", 2)
    async with conversation() as talk:
        waits = [talk.request("toy/wait") for _ in range(2)]
        refused = await talk.reply(talk.request("toy/echo"))
        assert (code(refused), refused["error"]["message"]) == (
            -32600,
            "2 requests wait for their replies; send it again when some of them have come",
        )
        talk.notify("$/cancelRequest", {"id": waits[0]})
        await talk.reply(waits[0])
        await expect_good(talk)


async def test_requests_sent_together_with_initialize_are_served() -> None:
    async with conversation(initialized=False) as talk:
        typed = {"jsonrpc": "2.0", "id": 2, "method": "toy/typed", "params": {"text": "at once"}}
        talk.put(INITIALIZE, typed)
        assert (await talk.reply(2))["result"]["text"] == "at once"


async def test_d04_after_shutdown_an_answer_to_our_request_is_used_and_a_request_refused() -> None:
    async with conversation() as talk:
        asked = talk.request("toy/ask")
        question = await talk.message(lambda message: message.get("method") == "client/ask")
        assert isinstance(question["id"], int)
        assert await talk.call("shutdown") is None
        talk.put({"jsonrpc": "2.0", "id": question["id"], "result": {"yes": True}})
        assert (await talk.reply(asked))["result"] == {"yes": True}
        assert code(await talk.reply(talk.request("toy/echo"))) == -32600
        talk.notify("exit")
        assert await talk.task == 0


@pytest.mark.parametrize("together", [True, False])
async def test_what_comes_behind_exit_is_not_taken(together: bool) -> None:
    goodbye = encode_frame(b'{"jsonrpc":"2.0","method":"exit"}')
    late = encode_frame(b'{"jsonrpc":"2.0","id":"late","method":"toy/typed","params":{"text":"late"}}')
    async with conversation() as talk:
        if together:
            talk.transport.put(goodbye + late)
        else:
            talk.transport.put(goodbye, late)
        assert await talk.task == 1
        assert talk.toy.began == []


@pytest.mark.parametrize("initialized", [False, True])
async def test_d04_exit_without_shutdown_gives_1(initialized: bool) -> None:
    async with conversation(initialized=initialized) as talk:
        talk.notify("exit")
        assert await talk.task == 1


async def test_d04_the_end_of_the_stream_after_shutdown_gives_0() -> None:
    async with conversation() as talk:
        await talk.call("shutdown")
        talk.transport.end()
        assert await talk.task == 0
        assert talk.toy.ended == ["inputEnded"]


async def expect_good(talk: Conversation) -> None:
    assert await talk.call("toy/echo", {"good": 1}) == {"good": 1}


@pytest.mark.parametrize(
    ("body", "reply_id", "expected"),
    [
        (b'[{"jsonrpc":"2.0","id":1,"method":"x"},{"jsonrpc":"2.0","id":2,"method":"x"}]', None, -32600),
        (b"[]", None, -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"x"}', None, -32600),
        (b'{"id":3,"method":"x"}', 3, -32600),
        (b'{"jsonrpc":"2.0","id":4,"method":7}', 4, -32600),
        (b'{"a":', None, -32700),
        (b'{"jsonrpc":"2.0","id":5,"method":"toy/echo","params":"\xff"}', None, -32700),
        (b"[" * 100_000 + b"]" * 100_000, None, -32700),
        (b'{"jsonrpc":"2.0","id":"q","method":"$/foo"}', "q", -32601),
        (b'{"jsonrpc":"2.0","id":6,"method":"no/such"}', 6, -32601),
        (b'{"jsonrpc":"2.0","id":6,"method":"session/events","params":{}}', 6, -32601),
        (b'{"jsonrpc":"2.0","id":6,"method":"exit"}', 6, -32601),
        (b'{"jsonrpc":"2.0","id":6,"method":"toy/note","params":{"text":"a notification with an id"}}', 6, -32601),
        (b'{"jsonrpc":"2.0","id":7,"method":"toy/typed","params":[1]}', 7, -32602),
        (b'{"jsonrpc":"2.0","id":7,"method":"toy/typed","params":{"text":5}}', 7, -32602),
        (b'{"jsonrpc":"2.0","id":7,"method":"toy/typed","params":{"other":5}}', 7, -32602),
        (b'{"jsonrpc":"2.0","id":8,"method":"toy/typed","params":{"text":"\\ud800"}}', 8, -32600),
    ],
)
async def test_d05_a_wrong_message_gets_its_error_and_the_next_request_its_answer(
    body: bytes, reply_id: Any, expected: int
) -> None:
    async with conversation() as talk:
        talk.put(body)
        assert code(await talk.reply(reply_id)) == expected
        await expect_good(talk)
        assert talk.messages == []


@pytest.mark.parametrize(
    "body",
    [
        b'{"jsonrpc":"2.0","method":"foo/bar"}',
        b'{"jsonrpc":"2.0","method":"$/foo","params":[1]}',
        b'{"jsonrpc":"2.0","method":"toy/typed","params":{"text":"a request without an id"}}',
        b'{"jsonrpc":"2.0","method":"toy/note","params":{"txt":"wrong"}}',
        b'{"jsonrpc":"2.0","id":99,"result":1}',
        b'{"jsonrpc":"2.0","id":"99","error":{"code":1,"message":"x"}}',
        b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"x"}}',
        b'{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":12345}}',
        b'{"jsonrpc":"2.0","method":"$/cancelRequest","params":{}}',
        b'{"jsonrpc":"2.0","method":"$/cancelRequest"}',
    ],
)
async def test_d05_what_wants_no_answer_gets_none(body: bytes) -> None:
    async with conversation() as talk:
        talk.put(body)
        await expect_good(talk)
        assert talk.messages == []
        assert talk.toy.began == []


async def test_keys_that_broke_other_servers_are_data() -> None:
    params = {"jsonrpc": "2.0", "class": 1, "type_name": "x", "a-b": {"jsonrpc": "2.0", "id": 1, "method": "toy/bug"}}
    async with conversation() as talk:
        assert await talk.call("toy/echo", params) == params


@pytest.mark.parametrize(
    ("method", "expected"),
    [("toy/bug", -32603), ("toy/leave", -32603), ("toy/lost", -32603), ("toy/unspeakable", -32603)],
)
async def test_a_handler_that_fails_costs_one_reply_and_tells_nothing_of_itself(method: str, expected: int) -> None:
    async with conversation() as talk:
        reply = await talk.reply(talk.request(method))
        assert code(reply) == expected
        assert reply["error"]["data"]["diagnostics"] in reply["error"]["message"]
        assert "secret" not in json.dumps(reply)
        await expect_good(talk)


async def test_an_error_of_refold_carries_its_kind() -> None:
    async with conversation() as talk:
        assert await talk.call("toy/busy") == {
            "code": -31000,
            "message": "a turn runs",
            "data": {"kind": "session.busy", "retryable": True, "session": "s1", "seq": 4},
        }


async def test_a_cancelled_request_is_answered_once_and_another_goes_on() -> None:
    async with conversation() as talk:
        first, second = talk.request("toy/wait"), talk.request("toy/wait")
        await talk.until(lambda: len(talk.toy.began) == 2)
        talk.notify("$/cancelRequest", {"id": first})
        talk.notify("$/cancelRequest", {"id": first})
        assert code(await talk.reply(first)) == -32800
        await talk.call("toy/release")
        assert (await talk.reply(second))["result"] == "released"
        assert (talk.toy.cancelled, talk.messages) == (1, [])


async def test_a_request_that_is_cancelled_before_it_began_is_answered_and_never_begins() -> None:
    async with conversation() as talk:
        talk.put(
            {"jsonrpc": "2.0", "id": "early", "method": "toy/wait"},
            {"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": "early"}},
        )
        assert code(await talk.reply("early")) == -32800
        assert talk.toy.began == []


async def test_a_request_that_finishes_although_cancelled_gives_its_result() -> None:
    async with conversation() as talk:
        stubborn = talk.request("toy/stubborn")
        await talk.call("toy/echo", {})
        talk.notify("$/cancelRequest", {"id": stubborn})
        assert (await talk.reply(stubborn))["result"] == "finished all the same"


async def test_a_second_request_with_an_id_in_flight_is_refused_and_the_first_goes_on() -> None:
    async with conversation() as talk:
        talk.request("toy/wait", request_id="same")
        talk.request("toy/echo", request_id="same")
        assert code(await talk.reply("same")) == -32600
        await talk.call("toy/release")
        assert (await talk.reply("same"))["result"] == "released"


async def test_ids_that_differ_only_in_type_are_two_and_an_id_is_free_after_its_reply() -> None:
    async with conversation() as talk:
        for request_id in (77, "77", 77):
            talk.request("toy/echo", {"of": str(type(request_id))}, request_id=request_id)
            reply = await talk.reply(request_id)
            assert type(reply["id"]) is type(request_id)


async def test_handlers_begin_in_the_order_of_arrival() -> None:
    names = [str(number) for number in range(500)]
    async with conversation() as talk:
        talk.put(*({"jsonrpc": "2.0", "id": name, "method": "toy/typed", "params": {"text": name}} for name in names))
        await talk.reply("499")
        assert talk.toy.began == names


async def test_a_message_above_the_limit_is_answered_and_the_stream_goes_on() -> None:
    head = b'{"jsonrpc":"2.0","id":8,"method":"toy/echo","params":"'
    size = DEFAULT_FRAME_LIMIT + 1
    async with conversation() as talk:
        talk.transport.put(b"Content-Length: %d\r\n\r\n" % size + head)
        for _ in range((size - len(head)) >> 20):
            talk.transport.put(b"x" * (1 << 20))
        talk.transport.put(b"x" * ((size - len(head)) & ((1 << 20) - 1)))
        reply = await talk.reply(8)
        assert (code(reply), reply["error"]["data"]["kind"]) == (-31000, "frame.tooLarge")
        await expect_good(talk)


async def test_an_answer_above_the_limit_fails_the_request_that_waits_for_it() -> None:
    async with conversation() as talk:
        asked = talk.request("toy/ask")
        question = await talk.message(lambda message: message.get("method") == "client/ask")
        head = b'{"jsonrpc":"2.0","id":%d,"result":"' % question["id"]
        talk.transport.put(b"Content-Length: %d\r\n\r\n" % (DEFAULT_FRAME_LIMIT + 1) + head + b"x" * 5000)
        assert code(await talk.reply(asked)) == -32603


async def test_d03_a_broken_header_gets_one_error_and_an_orderly_end() -> None:
    async with conversation() as talk:
        talk.transport.put(b"Content-Length: -5\r\n\r\n{}")
        assert code(await talk.reply(None)) == -32700
        assert await talk.task == 1
        assert (talk.toy.ended, talk.messages) == (["brokenFrame"], [])


async def test_what_follows_a_reply_begins_behind_it() -> None:
    async with conversation() as talk:
        followed = talk.request("toy/followed")
        first = await talk.message(lambda message: True)
        assert first["id"] == followed
        assert (await talk.message(lambda message: True))["method"] == "toy/second"


async def test_the_reply_to_a_subscription_precedes_its_events() -> None:
    async with conversation() as talk:
        subscribed = talk.request("event/subscribe", {"session": "s", "after": 3})
        await talk.message(lambda message: message.get("params", {}).get("caughtUp", False))
        assert talk.messages[0]["id"] == subscribed
        seqs = [event["seq"] for message in talk.messages[1:] for event in message["params"]["events"]]
        assert seqs == [4, 5, 6, 7]


async def test_the_last_word_about_events_comes_after_those_that_wait_and_other_replies_before() -> None:
    async with conversation() as talk:
        talk.transport.stop_reading()
        subscribed = talk.request("event/subscribe", {"session": "s", "after": 3})
        for _ in range(20):
            await talk.turn()
        ended = talk.request("event/unsubscribe", {"subscription": 1})
        echoed = talk.request("toy/echo", {})
        for _ in range(20):
            await talk.turn()
        talk.endpoint.notify_after_events("session/trouble", {})
        talk.transport.read_on()
        await talk.message(lambda message: message.get("method") == "session/trouble")
        said = [message.get("id", message.get("method")) for message in talk.messages]
        assert said == [subscribed, echoed, *["session/events"] * 3, ended]


async def test_a_notification_from_the_daemon_is_sent_as_it_is() -> None:
    async with conversation() as talk:
        talk.endpoint.notify("window/logMessage", {"type": 3, "message": "é"})
        assert (await talk.message(lambda message: "method" in message))["params"] == {"type": 3, "message": "é"}
