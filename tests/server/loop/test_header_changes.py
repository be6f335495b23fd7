"""What a session records when its header changes: deltas within an instance, a snapshot at the next one's first request."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from refold_protocol.errors import SessionCorruptionError
from refold_protocol.ids import SessionId
from refold_protocol.json_text import JsonText
from refold_protocol.session.events import Draft, RequestHeader, RequestHeaderDelta, StepStart, Trigger, TurnStart, UserMessage
from refold_protocol.session.messages import SystemDelta, ToolSchema, ToolsDelta, text_content
from refold_protocol.session.request import sent_requests
from refold_server.requests.session_log import SessionLog
from refold_server.sessions.session import Session
from refold_storage.interface import NewSession
from tests.support.logs import HEADER
from tests.support.loop_host import ScriptedHost, ScriptedProvider, says
from tests.support.loops import CLIENT, assert_proven, scripted_session, turn
from tests.support.memory_store import MemoryStore

pytestmark = pytest.mark.anyio

LOOK, WRITE, RUN = (ToolSchema(name, "Does it.", JsonText("{}")) for name in ("look", "write", "run"))
WRITE_2 = replace(WRITE, description="Does it well.")


class Offer:
    """What the seams of a session offer from now on, in place of what its instance has."""

    def __init__(self, session: Session, system: str) -> None:
        self.system = system
        self.tools: tuple[ToolSchema, ...] = (LOOK, WRITE)
        self.model = "one"
        hooks: Any = session.instance.hooks
        self._assemble, self._request = hooks.assemble, hooks.request
        hooks.assemble, hooks.request = self._assembled, self._called

    async def _assembled(self, *given: Any) -> Any:
        return replace(await self._assemble(*given), system=self.system, tools=self.tools)

    async def _called(self, *given: Any) -> Any:
        return replace(await self._request(*given), model=self.model)


def recorded(session: Session) -> list[RequestHeader | RequestHeaderDelta]:
    return [
        event.data for event in session.session_log.handle.read() if isinstance(event.data, RequestHeader | RequestHeaderDelta)
    ]


async def test_a_system_text_that_changes_is_recorded_as_its_changed_lines() -> None:
    provider = ScriptedProvider(*[says("ok")] * 4)
    async with scripted_session(ScriptedHost(provider)) as session:
        offer = Offer(session, "Be brief.\nMind the tests.")
        await turn(session)
        offer.system = "Be brief.\nMind the style."
        await turn(session)
        await turn(session)
        offer.system = ""
        await turn(session)
        assert recorded(session)[1:] == [
            RequestHeaderDelta(system=SystemDelta(1, ("Mind the style.",), 0)),
            RequestHeaderDelta(system=SystemDelta(0, (), 0)),
        ]
        assert [request.header.system for request in provider.requests] == [
            "Be brief.\nMind the tests.",
            "Be brief.\nMind the style.",
            "Be brief.\nMind the style.",
            None,
        ]
        assert_proven(session)


async def test_tools_that_join_with_another_model_are_recorded_by_name() -> None:
    provider = ScriptedProvider(*[says("ok")] * 2)
    async with scripted_session(ScriptedHost(provider)) as session:
        offer = Offer(session, "Be brief.\nMind the tests.")
        await turn(session)
        offer.model, offer.tools = "two", (LOOK, WRITE_2, RUN)
        await turn(session)
        config = provider.requests[1].header.config
        assert recorded(session)[1:] == [RequestHeaderDelta(tools=ToolsDelta((), (WRITE_2,), (RUN,)), config=config)]
        assert provider.requests[1].header.tools == (LOOK, WRITE_2, RUN)
        assert_proven(session)


async def test_what_is_sent_after_deltas_is_what_a_reader_of_the_log_rebuilds() -> None:
    provider = ScriptedProvider(*[says("ok")] * 8)
    async with scripted_session(ScriptedHost(provider)) as session:
        offer = Offer(session, "Be brief.\nMind the tests.")
        for number in range(8):
            offer.system = "\n".join(f"{line}\u2028\r" if line == number else f"{line}" for line in range(8))
            await turn(session)
        assert [type(data) for data in recorded(session)] == [RequestHeader] + [RequestHeaderDelta] * 7
        assert [request for _, _, request in sent_requests(session.session_log.handle.read())] == provider.requests
        assert_proven(session)


@pytest.mark.parametrize("drift", [False, True], ids=["unchanged", "changed meanwhile"])
async def test_a_log_with_deltas_is_resumed_with_a_snapshot_and_goes_on_with_deltas(drift: bool) -> None:
    store, provider = MemoryStore(clock=lambda: 1_000), ScriptedProvider(*[says("ok")] * 4)
    system = "Be brief.\nMind the style."
    async with scripted_session(ScriptedHost(provider), store=store) as session:
        offer = Offer(session, "Be brief.\nMind the tests.")
        await turn(session)
        offer.system = system
        await turn(session)
        before = session.session_log.folds.request_state.header
    async with scripted_session(ScriptedHost(provider), store=store) as session:
        offer = Offer(session, "Be kind." if drift else system)
        assert session.session_log.folds.request_state.header == before
        await turn(session)
        offer.system += "\nMind the gap."
        await turn(session)
        initial, delta, resumed, later = recorded(session)
        assert isinstance(initial, RequestHeader)
        assert isinstance(resumed, RequestHeader)
        assert (initial.reason, resumed.reason) == ("initial", "resume")
        assert (resumed.header == before) is not drift
        assert delta == RequestHeaderDelta(system=SystemDelta(1, ("Mind the style.",), 0))
        assert later == RequestHeaderDelta(system=SystemDelta(1 if drift else 2, ("Mind the gap.",), 0))
        assert_proven(session)


async def _in_a_step(*more: Draft) -> SessionLog:
    store = MemoryStore(clock=lambda: 1_000)
    session_log = SessionLog(await store.create(NewSession(SessionId("s1"), "/work", 1_000)))
    session_log.append(Draft(TurnStart(1, Trigger("message", CLIENT))))
    session_log.append(Draft(UserMessage(text_content("go"), CLIENT), surface_op="append"), Draft(StepStart(1, 1)), *more)
    return session_log


async def test_a_delta_that_does_not_fit_is_refused_before_it_is_accepted() -> None:
    fits, wrong = (Draft(RequestHeaderDelta(system=SystemDelta(keep, ("Be kind.",), 0))) for keep in (1, 9))
    session_log = await _in_a_step(Draft(RequestHeader(HEADER, "initial")))
    tail, folds = session_log.handle.tail, session_log.folds
    for batch in ((wrong,), (fits, wrong)):
        with pytest.raises(SessionCorruptionError, match=f"event {tail + len(batch)} does not fit"):
            session_log.append(*batch)
        assert session_log.handle.tail == tail
        assert session_log.folds is folds
    session_log.append(fits)
    assert session_log.folds.request_state.header == replace(HEADER, system="Be brief.\nBe kind.")


async def test_a_delta_before_any_snapshot_is_refused_at_append_and_at_opening() -> None:
    session_log = await _in_a_step()
    tail = session_log.handle.tail
    delta = Draft(RequestHeaderDelta(config=HEADER.config))
    with pytest.raises(SessionCorruptionError, match="none was recorded before") as caught:
        session_log.append(delta)
    assert caught.value.details == {"seq": tail + 1}
    assert session_log.handle.tail == tail
    session_log.handle.append((delta,))
    with pytest.raises(SessionCorruptionError, match="none was recorded before"):
        SessionLog(session_log.handle)
