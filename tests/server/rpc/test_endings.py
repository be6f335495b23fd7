"""How a connection ends: what runs is finished or cancelled, the daemon is told why, the exit code follows LSP. Case D-01."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Iterator

import pytest

from refold_server.rpc.connection import EndReason, signals_watched, watch_process
from refold_server.rpc.descriptors import open_ancestor
from tests.support.conversations import Conversation, conversation

pytestmark = pytest.mark.anyio


async def begun_wait(talk: Conversation) -> int | str:
    waiting = talk.request("toy/wait")
    await talk.until(lambda: talk.toy.began == ["wait"])
    return waiting


async def test_d01_at_the_end_of_input_requests_that_run_may_still_finish() -> None:
    async with conversation() as talk:
        waiting = await begun_wait(talk)
        talk.transport.end()
        await talk.until(lambda: talk.toy.ended == ["inputEnded"])
        talk.toy.released.set()
        assert (await talk.reply(waiting))["result"] == "released"
        assert await talk.task == 1


async def test_d01_a_client_that_closes_its_reading_end_ends_the_connection() -> None:
    async with conversation() as talk:
        await begun_wait(talk)
        talk.transport.hang_up()
        assert await talk.task == 1
        assert (talk.toy.ended, talk.toy.cancelled) == (["outputClosed"], 1)


async def test_a_signal_cancels_what_runs_and_each_gets_its_reply() -> None:
    async with conversation() as talk:
        waiting = await begun_wait(talk)
        talk.endpoint.end("terminated")
        assert (await talk.reply(waiting))["error"]["code"] == -32800
        assert await talk.task == 1
        assert talk.toy.ended == ["terminated"]


async def test_the_handler_of_a_notification_that_does_not_end_is_cancelled() -> None:
    async with conversation() as talk:
        talk.notify("toy/note", {})
        await talk.until(lambda: talk.toy.notes == [""])
        talk.notify("exit")
        assert await talk.task == 1


async def test_after_the_end_nothing_more_is_taken() -> None:
    async with conversation() as talk:
        talk.endpoint.end("terminated")
        talk.endpoint.end("exit")
        talk.request("toy/typed", {"text": "late"})
        assert await talk.task == 1
        assert (talk.toy.began, talk.toy.ended) == ([], ["terminated"])


class SlowEnd:
    """An ending that takes until it is told, unless it is a signal's."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    async def __call__(self, reason: EndReason) -> None:
        self.seen.append(reason)
        if reason != "terminated":
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.seen.append("cut short")
                raise


async def test_a_signal_takes_over_from_an_ending_that_is_under_way() -> None:
    ending = SlowEnd()
    talk = Conversation(on_end=ending)
    await talk.call("initialize", {})
    talk.transport.end()
    await talk.until(lambda: ending.seen == ["inputEnded"])
    talk.endpoint.end("terminated")
    assert await talk.task == 1
    assert ending.seen == ["inputEnded", "cut short", "terminated"]


async def test_an_ending_that_fails_does_not_keep_the_process() -> None:
    async def fails(reason: EndReason) -> None:
        raise ZeroDivisionError(reason)

    talk = Conversation(on_end=fails)
    await talk.call("initialize", {})
    await talk.call("shutdown")
    talk.notify("exit")
    assert await talk.task == 0


async def test_our_requests_end_with_the_connection() -> None:
    async with conversation() as talk:
        asked = talk.request("toy/ask")
        await talk.message(lambda message: message.get("method") == "client/ask")
        talk.transport.end()
        assert (await talk.reply(asked))["error"]["code"] == -32603


class Told:
    """An `end` that counts, and lets a test wait for so many calls."""

    def __init__(self, count: int) -> None:
        self.reasons: list[EndReason] = []
        self.complete = asyncio.Event()
        self._count = count

    def __call__(self, reason: EndReason) -> None:
        self.reasons.append(reason)
        if len(self.reasons) == self._count:
            self.complete.set()


async def test_signals_end_in_good_order_and_are_given_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    told = Told(3)
    with signals_watched(told):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            os.kill(os.getpid(), number)
        await told.complete.wait()
    assert told.reasons == ["terminated"] * 3
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize("pid", [None, 0, 1, -5, 2**22 + 1, 2**70])
async def test_a_process_that_is_not_there_or_is_everybodys_is_not_watched(pid: int | None) -> None:
    assert open_ancestor(pid) is None


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    yield process
    process.communicate()


async def test_a_process_that_is_no_ancestor_is_not_watched(child: subprocess.Popen[bytes]) -> None:
    assert open_ancestor(child.pid) is None


async def test_the_end_of_a_watched_process_is_told_once(child: subprocess.Popen[bytes]) -> None:
    told = Told(1)
    stop = watch_process(os.pidfd_open(child.pid), told)
    await asyncio.sleep(0)
    assert told.reasons == []
    child.communicate()
    await told.complete.wait()
    await asyncio.sleep(0)
    stop()
    assert told.reasons == ["parentGone"]
