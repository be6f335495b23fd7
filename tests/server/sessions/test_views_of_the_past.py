"""Views as of an earlier seq show what was then, whoever holds the log; only a log that itself ends open is balanced."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from refold_protocol.session.codec import chain
from refold_protocol.session.event_data import INTERRUPTED
from refold_protocol.session.grammar import fold_turns
from refold_protocol.session.messages import TextDelta
from refold_protocol.session.session_state import status_of
from refold_protocol.session.session_totals import EMPTY_SUMMARY
from refold_server.sessions.session_views import status_view, surface_view, transcript_view
from refold_storage.interface import Handle, SessionRecord
from tests.support.logs import Log
from tests.support.memory_store import MemoryStore
from tests.support.stores import SESSION

pytestmark = pytest.mark.anyio


async def cold(log: Log) -> Handle:
    """A handle on a log that nobody writes."""
    store = MemoryStore(clock=lambda: 1_000)
    record = SessionRecord(SESSION, "/w", 1, len(log.lines) - 1, chain(log.lines).hex(), (), EMPTY_SUMMARY)
    await store.import_session(record, log.lines)
    return await store.open(SESSION, "read")


def cut_off() -> Log:
    """A turn that is over, and one that was cut off in its reply."""
    log = Log()
    log.turn()
    log.tool_step("c1")
    log.step()
    log.stream(TextDelta(0, "Because."))
    log.reply("Because.")
    log.end_step()
    log.end_turn()
    log.turn("And?")
    log.step()
    log.stream(TextDelta(0, "Half"))
    return log


async def test_what_was_in_the_middle_of_a_log_is_the_same_whoever_holds_it() -> None:
    log = cut_off()
    handle = await cold(log)
    for at in range(-1, handle.tail):
        then = log.events[: at + 1]
        assert status_view(handle, at, owned=False) == status_view(handle, at, owned=True) == status_of(fold_turns(then))
        entries = list(transcript_view(handle, at, owned=False))
        assert entries == list(transcript_view(handle, at, owned=True))
        assert [entry.seq for entry in entries] == [event.seq for event in then if event.surface_op is not None]
        assert surface_view(handle, at, owned=False) == surface_view(handle, at, owned=True)


async def test_a_log_that_ends_open_is_balanced_in_memory_as_its_next_writer_would() -> None:
    log = cut_off()
    handle = await cold(log)
    tail = handle.tail
    assert status_view(handle, tail, owned=False).status == "idle"
    assert status_view(handle, tail, owned=True).status == "running"
    assert len(surface_view(handle, tail, owned=False)) == len(surface_view(handle, tail, owned=True)) + 1
    *before, partial, end = transcript_view(handle, tail, owned=False)
    assert before == list(transcript_view(handle, tail, owned=True))
    assert (partial.kind, partial.interrupted, end.kind, end.reason) == ("assistant", True, "end", INTERRUPTED)
    log.close()
    assert [replace(entry, time=0) for entry in transcript_view(await cold(log), len(log.events) - 1, owned=False)] == [
        replace(entry, time=0) for entry in (*before, partial, end)
    ]
