"""Troubles of a log are told once for each kind, and that they are over; the status follows at once."""

from __future__ import annotations

import pytest

from refold_protocol.errors import StorageFullError
from refold_protocol.session.messages import text_content
from refold_server.rpc.notices import SessionsChangedNotice, SessionTroubleNotice, StatusNotices, TroubleNotices
from tests.support.loop_host import ScriptedHost, ScriptedProvider, says
from tests.support.loops import CLIENT, NAME, scripted_session, turn
from tests.support.memory_store import MemoryStore
from tests.support.stores import Faults

pytestmark = pytest.mark.anyio


async def test_a_trouble_is_told_once_however_often_it_is_met_and_that_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    faults = Faults()
    store = MemoryStore(clock=lambda: 1_000, fail_point=faults)
    told: list[tuple[str, object]] = []

    def notify(method: str, params: object) -> None:
        told.append((method, params))

    async with scripted_session(ScriptedHost(ScriptedProvider(says("ok"))), store=store) as session:
        StatusNotices(notify).watch(session)
        TroubleNotices(notify).watch(session)
        await turn(session)
        durable = session.session_log.handle.durable
        told.clear()
        faults.full = True
        for _ in range(3):
            with pytest.raises(StorageFullError):
                await session.start(text_content("lost"), CLIENT)
        assert told == [
            ("sessions/changed", SessionsChangedNotice(NAME, "broken", durable)),
            ("session/trouble", SessionTroubleNotice(NAME, "log.full", durable, "the disk is full, says the test")),
        ]
        told.clear()
        faults.full = False
        await session.session_log.flush()
        tail = session.session_log.handle.tail
        assert told == [
            ("sessions/changed", SessionsChangedNotice(NAME, "idle", tail)),
            ("session/trouble", SessionTroubleNotice(NAME, "cleared", tail, "The log can be written again.")),
        ]
    assert caplog.text == ""


async def test_a_model_whose_window_nobody_stated_is_named_once_in_a_session() -> None:
    told: list[tuple[str, SessionTroubleNotice]] = []

    def notify(method: str, params: object) -> None:
        assert isinstance(params, SessionTroubleNotice)
        told.append((method, params))

    async with scripted_session(ScriptedHost(ScriptedProvider(says("one"), says("two")))) as session:
        TroubleNotices(notify).watch(session)
        assert told == [], "not before there is a turn"
        await turn(session)
        await turn(session)
    (named,) = told
    assert (named[0], named[1].kind) == ("session/trouble", "model.unconfigured")
    assert 'set context_window under [models."scripted/small"]' in named[1].message
    assert "not metered, and its history is never compacted" in named[1].message


async def test_a_model_with_a_window_is_no_trouble() -> None:
    told: list[object] = []
    host = ScriptedHost(ScriptedProvider(says("one")))
    host.window = 100_000
    async with scripted_session(host) as session:
        TroubleNotices(lambda _, params: told.append(params)).watch(session)
        await turn(session)
    assert told == []
