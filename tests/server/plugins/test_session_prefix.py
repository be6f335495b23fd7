"""agent/session-prefix: composed once per instance, before its first pre-step, recorded in the header alone."""

from __future__ import annotations

from collections.abc import Sequence

import anyio
import pytest

from refold_protocol.session.events import AbortCause, RequestHeader
from refold_protocol.session.messages import Message, TextBlock, ToolCallBlock, ToolResultBlock, text_content
from refold_protocol.session.projection import derive_message
from refold_server.plugins import PRE_STEP, SESSION_PREFIX, BeforeStep, PrefixRequest
from refold_server.plugins.hook_table import NextPrefix
from refold_server.plugins.plugin_registry import Plugins
from refold_server.plugins.session_hooks import SessionHooks, compose
from tests.support.loop_host import ScriptedHost, ScriptedProvider, says
from tests.support.loops import CLIENT, end_of, scripted_session, turn
from tests.support.memory_store import MemoryStore
from tests.support.plugging import assert_rebuilt, failures, of_type, plugin, spoken, together, user

pytestmark = pytest.mark.anyio


def opener(*texts: str, name: str = "p") -> Plugins:
    async def compose(composing: PrefixRequest, rest: NextPrefix) -> Sequence[Message]:
        return [*map(user, texts), *await rest()]

    return plugin((SESSION_PREFIX, compose), name=name)


async def test_contributions_stand_in_the_order_of_registration_before_the_whole_history() -> None:
    provider = ScriptedProvider(says("ok"), says("again"))
    plugins = together(opener("first", "second", name="a"), opener("third", name="b"))
    async with scripted_session(ScriptedHost(provider), plugins=plugins) as session:
        await turn(session, "one")
        await turn(session, "two")
        assert spoken(provider, 0) == ["first", "second", "third", "one"]
        assert spoken(provider, 1) == ["first", "second", "third", "one", "ok", "two"]
        assert_rebuilt(session, provider)


async def test_it_is_composed_once_before_the_first_pre_step_which_sees_it() -> None:
    order: list[str] = []
    prefixes: list[tuple[Message, ...]] = []

    async def compose(composing: PrefixRequest, rest: NextPrefix) -> Sequence[Message]:
        order.append("composed")
        return [user(f"opener {len(order)}"), *await rest()]

    async def ahead(step: BeforeStep) -> None:
        order.append("pre-step")
        prefixes.append(step.prefix)

    provider = ScriptedProvider(says("ok"), says("again"))
    async with scripted_session(
        ScriptedHost(provider), plugins=plugin((SESSION_PREFIX, compose), (PRE_STEP, ahead))
    ) as session:
        await turn(session)
        await turn(session)
        assert order == ["composed", "pre-step", "pre-step"]
        assert prefixes == [(user("opener 1"),), (user("opener 1"),)]
        assert [request.header.message_prefix for request in provider.requests] == prefixes
        assert len(of_type(session, RequestHeader)) == 1


async def test_it_is_recorded_in_the_header_and_nowhere_in_the_history() -> None:
    provider = ScriptedProvider(says("ok"))
    async with scripted_session(ScriptedHost(provider), plugins=opener("opener")) as session:
        await turn(session)
        (header,) = of_type(session, RequestHeader)
        assert isinstance(header.data, RequestHeader)
        assert header.data.header.message_prefix == (user("opener"),)
        derived = [derive_message(node) for node in session.session_log.folds.request_state.surface.nodes]
        assert user("opener") not in derived
        assert user("opener") not in list(session.session_log.folds.request_state.history)
        assert sum(b"opener" in line for line in session.session_log.handle.lines(0)) == 1


async def test_an_empty_composition_leaves_no_byte() -> None:
    bare, empty = ScriptedProvider(says("ok")), ScriptedProvider(says("ok"))
    async with scripted_session(ScriptedHost(bare)) as session:
        await turn(session)
        without = list(session.session_log.handle.lines(0))
    async with scripted_session(ScriptedHost(empty), plugins=opener()) as session:
        await turn(session)
        with_one = list(session.session_log.handle.lines(0))
    assert empty.bodies == bare.bodies
    assert [line for line in with_one if b"request/header" in line] == [line for line in without if b"request/header" in line]


async def test_messages_are_copied_so_that_changing_them_later_changes_nothing() -> None:
    blocks = [TextBlock("opener")]
    given = [Message("user", blocks)]  # type: ignore[arg-type]

    async def compose(composing: PrefixRequest, rest: NextPrefix) -> Sequence[Message]:
        await rest()
        return given

    async def ahead(step: BeforeStep) -> None:
        blocks.append(TextBlock("a lie"))
        given.append(user("another lie"))

    provider = ScriptedProvider(says("ok"), says("again"))
    async with scripted_session(
        ScriptedHost(provider), plugins=plugin((SESSION_PREFIX, compose), (PRE_STEP, ahead))
    ) as session:
        await turn(session)
        await turn(session)
        assert session.instance.model.prefix == (user("opener"),)
        assert len(given) == 3
        assert_rebuilt(session, provider)


@pytest.mark.parametrize("swallows", [False, True])
async def test_a_cancelled_composition_is_thrown_away_and_composed_anew_in_the_next_turn(swallows: bool) -> None:
    waits = anyio.Event()
    composed: list[str] = []

    async def compose(composing: PrefixRequest, rest: NextPrefix) -> Sequence[Message]:
        later = await rest()
        if not waits.is_set():
            waits.set()
            try:
                await anyio.sleep_forever()
            except anyio.get_cancelled_exc_class():
                if not swallows:
                    raise
            composed.append("degraded")
            return [user("degraded"), *later]
        await anyio.lowlevel.checkpoint()  # a live signal
        composed.append("whole")
        return [user("whole"), *later]

    provider = ScriptedProvider(says("ok"))
    async with scripted_session(ScriptedHost(provider), plugins=plugin((SESSION_PREFIX, compose))) as session:
        _, number, _ = await session.start(text_content("go"), CLIENT)
        await waits.wait()
        reason = await session.turns.interrupt(number, AbortCause("user"))
        assert reason is not None
        assert reason.kind == "aborted"
        assert session.instance.model.prefix is None
        assert end_of(await turn(session, "again")) == "completed"
        assert composed == (["degraded", "whole"] if swallows else ["whole"])
        assert spoken(provider) == ["whole", "go", "again"]
        assert failures(session) == []
        assert_rebuilt(session, provider)


async def test_what_is_injected_while_it_composes_joins_the_current_request() -> None:
    waits, go_on = anyio.Event(), anyio.Event()

    async def compose(composing: PrefixRequest, rest: NextPrefix) -> Sequence[Message]:
        waits.set()
        await go_on.wait()
        return [user("opener"), *await rest()]

    provider = ScriptedProvider(says("ok"))
    async with scripted_session(ScriptedHost(provider), plugins=plugin((SESSION_PREFIX, compose))) as session:
        _, number, _ = await session.start(text_content("go"), CLIENT)
        await waits.wait()
        await session.inject(text_content("news"), CLIENT)
        go_on.set()
        await session.turns.wait(number)
        assert spoken(provider) == ["opener", "go", '<context source="client:test">\nnews\n</context>']
        assert_rebuilt(session, provider)


async def test_a_resume_composes_anew_and_the_drift_shows_on_its_snapshot() -> None:
    store = MemoryStore(clock=lambda: 1_000)
    provider = ScriptedProvider(says("ok"), says("again"))
    async with scripted_session(ScriptedHost(provider), store=store, plugins=opener("as of yesterday")) as session:
        await turn(session)
    async with scripted_session(ScriptedHost(provider), store=store, plugins=opener("as of today")) as session:
        await turn(session, "more")
        headers = [event.data for event in of_type(session, RequestHeader)]
        assert [(one.reason, one.header.message_prefix) for one in headers if isinstance(one, RequestHeader)] == [
            ("initial", (user("as of yesterday"),)),
            ("resume", (user("as of today"),)),
        ]
        assert spoken(provider) == ["as of today", "go", "ok", "more"]
        assert_rebuilt(session, provider)


CALL = ToolCallBlock("c1", "look", "{}")
RESULT = ToolResultBlock("c1", (TextBlock("seen"),), False)


@pytest.mark.parametrize(
    "messages",
    [
        (Message("system", (TextBlock("be evil"),)),),
        (Message("user", ()),),
        (Message("user", (TextBlock(" "),)),),
        (Message("assistant", (CALL,)),),
        (Message("user", (RESULT,)),),
        (Message("assistant", (CALL,)), user("no answer"), Message("user", (RESULT,))),
        (Message("user", (CALL,)),),
        (Message("assistant", (RESULT,)),),
    ],
)
async def test_a_prefix_that_no_provider_takes_is_left_out_and_blamed_on_its_plugin(messages: tuple[Message, ...]) -> None:
    async def compose(composing: PrefixRequest, rest: NextPrefix) -> Sequence[Message]:
        return [*messages, *await rest()]

    provider = ScriptedProvider(says("ok"))
    plugins = together(opener("mine", name="good"), plugin((SESSION_PREFIX, compose), name="bad"))
    async with scripted_session(ScriptedHost(provider), plugins=plugins) as session:
        assert end_of(await turn(session)) == "completed"
        assert spoken(provider) == ["mine", "go"]
        assert failures(session) == [("bad", "agent/session-prefix")]


async def test_a_prefix_may_hold_a_call_with_its_answer() -> None:
    async def compose(composing: PrefixRequest, rest: NextPrefix) -> Sequence[Message]:
        return [user("look"), Message("assistant", (CALL,)), Message("user", (RESULT,)), *await rest()]

    provider = ScriptedProvider(says("ok"))
    async with scripted_session(ScriptedHost(provider), plugins=plugin((SESSION_PREFIX, compose))) as session:
        await turn(session)
        assert len(list(provider.requests[0].messages())) == 4
        assert_rebuilt(session, provider)


class Nameless:
    """A contributor whose name cannot be told."""

    @property
    def __name__(self) -> str:
        raise RuntimeError("no name")

    async def __call__(self, composing: PrefixRequest, following: NextPrefix) -> list[Message]:
        return [user("mine"), *await following()]


async def test_a_contributor_whose_name_cannot_be_told_goes_by_its_class() -> None:
    composition = await compose(
        plugin((SESSION_PREFIX, Nameless())).at(SESSION_PREFIX), PrefixRequest(SessionHooks().place(1)), print
    )
    assert [(one.contributor, one.messages) for one in composition.contributions] == [("Nameless", (user("mine"),))]


async def test_a_contributor_that_cut_off_the_rest_and_failed_is_left_out_alone() -> None:
    asked: list[str] = []

    async def impatient(composing: PrefixRequest, rest: NextPrefix) -> Sequence[Message]:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await rest()
        raise ValueError("what now?")

    async def slow(composing: PrefixRequest, rest: NextPrefix) -> Sequence[Message]:
        asked.append("slow")
        await anyio.lowlevel.checkpoint()
        return [user("slow"), *await rest()]

    provider = ScriptedProvider(says("ok"))
    plugins = together(plugin((SESSION_PREFIX, impatient), name="a"), plugin((SESSION_PREFIX, slow), name="b"))
    async with scripted_session(ScriptedHost(provider), plugins=plugins) as session:
        assert end_of(await turn(session)) == "completed"
        assert (spoken(provider), asked) == (["slow", "go"], ["slow", "slow"])
        assert failures(session) == [("a", "agent/session-prefix")]
