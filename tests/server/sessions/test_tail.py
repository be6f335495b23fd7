"""A reader's place in a log that grows: order, what waits for durability, chunks left out, nothing told twice."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold_protocol.ids import InputId, SessionId
from refold_protocol.session.codec import decode_event
from refold_protocol.session.events import AssistantChunk, AssistantMessage, Draft, InputAccepted, SessionTitle
from refold_protocol.session.messages import Source, TextBlock, TextDelta, text_content
from refold_server.sessions.event_tail import Chunks, Tail
from refold_storage.interface import Handle, NewSession
from tests.support.memory_store import MemoryStore

pytestmark = pytest.mark.anyio

CHUNK = Draft(AssistantChunk(1, 1, 1, TextDelta(0, "x")))
REPLY = Draft(AssistantMessage(1, 1, (TextBlock("x"),), "p", "m", "stop"), surface_op="append", sources=())
TITLE = Draft(SessionTitle("t", Source("client")))
PROMPT = Draft(InputAccepted(InputId("i"), "prompt", text_content("go"), Source("client")))


async def handle() -> Handle:
    store = MemoryStore(clock=lambda: 1)
    return await store.create(NewSession(SessionId("s"), "/", 1))


def told(tail: Tail) -> list[int]:
    """Take everything that can be told now; prev and last must join."""
    seqs: list[int] = []
    last = tail.last
    while (batch := tail.take()) is not None:
        assert batch.prev == last
        seqs += [decode_event(line).seq for line in batch.lines]
        last = batch.last
        assert last == (seqs[-1] if batch.lines else batch.prev)
    return seqs


async def test_events_are_told_in_order_and_once() -> None:
    log = await handle()
    log.append([TITLE, TITLE])
    tail = Tail(log, -1)
    assert told(tail) == [0, 1]
    log.append([TITLE])
    assert told(tail) == [2]
    assert told(tail) == []


async def test_an_event_with_an_outside_effect_waits_for_its_flush_and_holds_back_what_follows() -> None:
    log = await handle()
    tail = Tail(log, -1)
    log.append([TITLE])
    log.append([PROMPT])
    log.append([TITLE])
    assert told(tail) == [0]
    await log.flush()
    assert told(tail) == [1, 2]


async def test_a_reader_that_comes_late_is_held_back_by_what_is_not_durable_yet() -> None:
    log = await handle()
    log.append([TITLE, PROMPT, TITLE])
    assert told(Tail(log, -1)) == [0]


async def test_when_what_was_told_becomes_durable_that_is_told_too_once() -> None:
    log = await handle()
    tail = Tail(log, -1)
    log.append([TITLE])
    first = tail.take()
    assert first is not None
    assert (first.last, first.durable) == (0, -1)
    await log.flush()
    second = tail.take()
    assert second is not None
    assert (second.lines, second.durable, second.prev) == ([], 0, 0)
    assert tail.take() is None


async def test_chunks_none_leaves_them_out_and_shows_the_gap_by_prev() -> None:
    log = await handle()
    log.append([TITLE, CHUNK, CHUNK, REPLY, CHUNK])
    tail = Tail(log, -1, "none")
    batch = tail.take()
    assert batch is not None
    assert [decode_event(line).seq for line in batch.lines] == [0, 3]
    log.append([TITLE])
    batch = tail.take()
    assert batch is not None
    assert (batch.prev, [decode_event(line).seq for line in batch.lines]) == (3, [5])


async def test_chunks_live_are_told_until_their_message_is_there() -> None:
    log = await handle()
    tail = Tail(log, -1, "live")
    log.append([CHUNK, CHUNK])
    assert told(tail) == [0, 1]
    log.append([CHUNK])
    log.append([REPLY, TITLE])
    assert told(tail) == [3, 4]
    log.append([CHUNK])
    assert told(tail) == [5]
    assert told(Tail(log, -1, "live")) == [3, 4, 5]


@given(
    st.lists(st.sampled_from([CHUNK, REPLY, TITLE]), max_size=60),
    st.sampled_from(["all", "live", "none"]),
    st.integers(-1, 59),
    st.lists(st.integers(0, 60), max_size=5),
)
async def test_whatever_is_read_when_nothing_but_chunks_is_ever_left_out(
    drafts: list[Draft], chunks: Chunks, after: int, stops: list[int]
) -> None:
    log = await handle()
    tail = Tail(log, min(after, len(drafts) - 1) if drafts else -1, chunks)
    begin = tail.last
    seen: list[int] = []
    for place, draft in enumerate(drafts):
        log.append([draft])
        if place in stops:
            seen += told(tail)
    seen += told(tail)
    assert seen == sorted(set(seen))
    events = list(log.read())
    must = [event.seq for event in events if event.seq > begin and (chunks == "all" or event.type != "assistant/chunk")]
    assert [seq for seq in seen if events[seq].type != "assistant/chunk" or chunks == "all"] == must


async def test_a_closed_reader_no_longer_waits() -> None:
    tail = Tail(await handle(), -1)
    tail.close()
    await tail.wait()
    assert tail.closed
