"""Another process is stopped while it holds the store's write lock: who waits is told `log.busy` with its process id, nothing
that was told is lost, and all goes on once that process does.

Invariant: A stopped writer is named, and all goes on when it does.
"""

from __future__ import annotations

import signal
import sys

import pytest

from refold_client import RpcError
from tests.support.chat_stream import reply, text
from tests.support.daemons import Place, new_session, text_so_far, until
from tests.support.fake_provider import FakeProvider, Gate, answer
from tests.support.store_child import StoreChild

pytestmark = pytest.mark.anyio

HASTY = (sys.executable, "-m", "tests.support.hasty_daemon")


async def test_a_stopped_writer_is_named_as_the_holder_and_the_session_goes_on_when_it_does(place: Place) -> None:
    async with FakeProvider(answer(reply("One.")), answer(reply("Two."))) as provider:
        place.provider(provider.base_url)
        async with place.daemon(HASTY) as client:
            session = await new_session(client, place)
            events = await client.subscribe(session)
            await client.prompt(session, "first")
            told = await until(events, "turn/end")
            with StoreChild("hold", place.store) as child:
                assert child.answer() == "ready"
                child.signal(signal.SIGSTOP)
                with pytest.raises(RpcError) as raised:
                    await client.start_turn(session, "while it is stopped")
                assert raised.value.kind == "log.busy"
                assert raised.value.data["holder"] == child.pid
                assert str(child.pid) in str(raised.value)
                assert (await client.read(session, "events"))["events"][: len(told)] == told, "reading needs no lock"
                assert len(provider.requests) == 1
                child.signal(signal.SIGCONT)
                assert child.ask() == "free"
            end = await client.prompt(session, "second")
            assert end["data"]["reason"] == {"kind": "completed"}
            told += await until(events, "turn/end")
    assert await place.recorded(session) == told
    assert [event["data"]["how"] for event in told if event["type"] == "input/settled"] == ["withdrawn"]
    await place.verify(session)


async def test_a_log_that_is_late_is_told_and_a_reply_that_streams_is_waited_for(place: Place) -> None:
    gate = Gate()
    async with FakeProvider(answer(text("Half. "), gate, reply("Whole."))) as provider:
        place.provider(provider.base_url)
        async with place.daemon(HASTY) as client:
            session = await new_session(client, place)
            events, troubles = await client.subscribe(session), client.listen("session/trouble")
            turn = (await client.start_turn(session, "go"))["turn"]
            await text_so_far(events, "Half. ")
            with StoreChild("hold", place.store) as child:
                assert child.answer() == "ready"
                child.signal(signal.SIGSTOP)
                with pytest.raises(RpcError) as raised:
                    await client.rename(session, "late")
                assert raised.value.kind == "log.busy"
                told = await anext(troubles)
                assert (told["session"], told["kind"]) == (session, "log.busy")
                assert str(child.pid) in told["message"]
                assert (await client.health())["sessions"][0]["status"] == "broken"
                child.signal(signal.SIGCONT)
                assert child.ask() == "free"
            assert (await anext(troubles))["kind"] == "cleared"
            gate.open()
            end = await client.wait_turn(session, turn=turn)
            assert end["data"]["reason"] == {"kind": "completed"}
        await place.verify(session)


async def test_a_store_that_a_stopped_writer_keeps_from_being_opened_names_it_and_opens_once_it_is_killed(place: Place) -> None:
    """The first open of a store by a process needs the lock for a moment."""
    async with FakeProvider(answer(reply("One."))) as provider:
        place.provider(provider.base_url)
        async with place.daemon(HASTY) as client:
            with StoreChild("hold", place.store) as child:
                assert child.answer() == "ready"
                child.signal(signal.SIGSTOP)
                with pytest.raises(RpcError) as raised:
                    await new_session(client, place)
                assert (raised.value.kind, raised.value.data["holder"]) == ("log.busy", child.pid)
                child.kill()
            session = await new_session(client, place)
            await client.prompt(session, "go")
        await place.verify(session)
