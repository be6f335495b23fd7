"""Any history of appends, flushes, reopenings and reads gives the log that a plain list would give, in both stores."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refold_protocol.errors import InvalidEventError
from refold_protocol.session.codec import CHUNK, chain
from refold_protocol.session.events import Draft, Event
from refold_storage.damage import walk_chain
from refold_storage.interface import Handle, Store
from tests.support.stores import NEW, SESSION, StoreKind, chunks, run, tool_result
from tests.support.strategies import drafts

Move = tuple[str, int, int]

MOVES = st.lists(
    st.tuples(
        st.sampled_from(("append", "append", "append", "big", "flush", "reopen", "read", "lines")),
        st.integers(0, 400),
        st.integers(0, 400),
    ),
    max_size=12,
)


@pytest.mark.parametrize("kind", ["memory", "lmdb"])
@settings(max_examples=40)
@given(moves=MOVES)
def test_any_history_gives_the_log_that_a_list_would_give(kind: str, moves: list[Move]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run(lambda: _play(StoreKind(None if kind == "memory" else Path(folder) / "store"), moves))


@pytest.mark.parametrize("kind", ["memory", "lmdb"])
@settings(max_examples=40)
@given(data=st.data())
def test_any_events_come_back_as_they_were_accepted(kind: str, data: st.DataObject) -> None:
    wanted = data.draw(st.lists(drafts(0), max_size=5))

    async def play() -> None:
        store = await place.open()
        handle = await store.create(NEW)
        accepted: list[Event] = []
        for draft in wanted:
            try:
                accepted += handle.append([Draft(draft.data, draft.surface_op, type=draft.type)])
            except InvalidEventError:  # drawn beyond what the codec takes, which its own tests are about
                assert handle.tail == len(accepted) - 1
        await handle.close()
        if accepted:
            reader = await store.open(SESSION, "read")
            assert list(reader.read()) == accepted
        await store.close()

    with tempfile.TemporaryDirectory() as folder:
        place = StoreKind(None if kind == "memory" else Path(folder) / "store")
        run(play)


async def _play(kind: StoreKind, moves: list[Move]) -> None:
    store = await kind.open()
    handle: Handle = await store.create(NEW)
    model: list[Event] = []
    for name, one, two in moves:
        if name == "append":
            model += handle.append(chunks(one + 1, two))
        elif name == "big":
            model += handle.append([*chunks(two % 3), tool_result(one * 40, ""), *chunks(two % 5)])
        elif name == "flush":
            await handle.flush()
        elif name == "reopen" and handle.durable >= 0:
            await handle.close()
            handle = await store.open(SESSION, "write")
        else:
            _compare(handle, model, one, two)
    _compare(handle, model, 0, 10**6)
    await handle.flush()
    await _check_stored(store, model)
    await store.close()


def _compare(handle: Handle, model: list[Event], one: int, two: int) -> None:
    first = min(one, len(model))
    last = min(first + two, len(model) - 1)
    assert list(handle.read(first, last)) == model[first : last + 1]
    assert handle.lines(first, last) == [event.line for event in model[first : last + 1]]
    for event, line in zip(model[first : last + 1], handle.lines(first, last, chunks=False), strict=True):
        assert line == event.line or (line == CHUNK and event.type == "assistant/chunk")
    assert handle.tail == len(model) - 1


async def _check_stored(store: Store, model: list[Event]) -> None:
    if not model:
        return
    reader = await store.open(SESSION, "read")
    assert list(reader.read()) == model
    assert reader.head_digest == chain(event.line for event in model)
    assert [link.seq for link in walk_chain(reader)] == list(range(len(model)))
