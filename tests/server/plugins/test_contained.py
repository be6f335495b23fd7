"""Plugins that go wrong, at every seam: what happens is what the table of seams says, and the rest of the world goes on.

Invariant: A plugin that raises, hangs, exits or gives nonsense costs what the table of seams says, and is told by name; the
next turn works.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from refold_protocol.session.events import PluginFailed, TurnEnd
from refold_server.plugins import HOOKS, BeforeStep, Context, context
from refold_server.plugins.hook_table import EXECUTE, PRE_EXECUTE, PRE_STEP, PROMPT_SUBMIT, STREAM, SUMMARISE, Hook
from refold_server.sessions.session import Session
from tests.support.loop_host import ScriptedHost, ScriptedProvider, calls, says
from tests.support.loops import assert_proven, echo, fill, scripted_session, turn
from tests.support.misbehaviour import ANY_NONSENSE, OWN_NONSENSE, RAISING, giving, handler
from tests.support.plugging import failures, of_type, plugin, said, together
from tests.support.virtual_time import VirtualTimeLoop, run_in_virtual_time

pytestmark = pytest.mark.anyio

WAITING = [seam for seam in HOOKS if seam.limit_s is not None]
ENDS = {"skip": "completed", "end": "error"}

Fault = Callable[[], Awaitable[object]]


def end_with(seam: Hook[Any]) -> str:
    """How the turn of a plugin that fails at a seam ends, by the table."""
    return "blocked" if seam is PROMPT_SUBMIT else ENDS.get(seam.on_failure, "completed")


async def good(ahead: BeforeStep) -> tuple[Context, ...]:
    return (context("from the good one"),)


async def assert_contained(seam: Hook[Any], broken: Any, limit_s: float | None = None) -> list[PluginFailed]:
    """Run a turn with a broken handler and one without; give the failures that were recorded in the first."""
    provider = ScriptedProvider(*[calls(("a", "look", "{}")), says("ok")] * 2)
    armed = [True]

    def once(*given: Any) -> Any:
        if armed[0]:
            return broken(*given)
        return mended(*given)

    mended = handler(seam, giving(lambda: None)) if seam.mode == "serial" else _passing_on(seam)
    plugins = together(plugin((seam, once), name="bad", limit_s=limit_s), plugin((PRE_STEP, good), name="good"))
    host = ScriptedHost(provider, {"look": echo})
    async with scripted_session(host, plugins=plugins) as session:
        if seam is SUMMARISE:
            await fill(session, host)
        with anyio.fail_after(20):
            event = await turn(session)
        assert isinstance(event.data, TurnEnd)
        assert event.data.reason.kind == end_with(seam)
        found = failures(session)
        assert set(found) == {("bad", seam.name)}
        if end_with(seam) != "blocked":
            assert ("good", "from the good one") in said(session)
        _assert_guarded(seam, session)
        assert_proven(session)
        armed[0] = False
        provider.scripts[:] = [calls(("a", "look", "{}")), says("ok")]
        after = await turn(session)
        assert isinstance(after.data, TurnEnd)
        assert after.data.reason.kind == "completed"
        assert failures(session) == found
        assert_proven(session)
        return [one.data for one in of_type(session, PluginFailed) if isinstance(one.data, PluginFailed)]


def _passing_on(seam: Hook[Any]) -> Any:
    if seam.name == "llm/stream":

        async def wrap(outgoing: Any, rest: Any) -> Any:
            async for chunk in rest(outgoing):
                yield chunk

        return wrap

    async def around(payload: object, rest: Callable[[], Awaitable[object]]) -> object:
        return await rest()

    return around


def _assert_guarded(seam: Hook[Any], session: Session) -> None:
    """A guard that broke lets nothing through."""
    host = session.instance.host
    assert isinstance(host, ScriptedHost)
    if seam is PRE_EXECUTE or end_with(seam) == "blocked":
        assert host.ran == []
    if seam is PROMPT_SUBMIT:
        assert host.scripted.bodies == []


@pytest.mark.parametrize("fault", RAISING.values(), ids=RAISING.keys())
@pytest.mark.parametrize("seam", WAITING, ids=lambda seam: seam.name)
async def test_what_a_handler_raises_is_contained_and_told(seam: Hook[Any], fault: Fault) -> None:
    for recorded in await assert_contained(seam, handler(seam, fault)):
        assert recorded.message
        assert "\n" not in recorded.message


@pytest.mark.parametrize("fault", RAISING.values(), ids=RAISING.keys())
@pytest.mark.parametrize("seam", [one for one in WAITING if one.mode == "waterfall"], ids=lambda seam: seam.name)
async def test_what_a_handler_raises_after_it_got_the_rest_is_contained_and_told(seam: Hook[Any], fault: Fault) -> None:
    await assert_contained(seam, handler(seam, fault, after=True))


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("seam", WAITING, ids=lambda seam: seam.name)
def test_a_handler_that_never_returns_is_stopped_and_told(seam: Hook[Any], after: bool) -> None:
    broken = handler(seam, anyio.sleep_forever, after=after)
    recorded = run_in_virtual_time(assert_contained(seam, broken, limit_s=7))
    assert {one.message for one in recorded} == {"it took longer than 7 s"}


@pytest.mark.parametrize("seam", WAITING, ids=lambda seam: seam.name)
def test_a_handler_that_blocks_the_loop_for_too_long_is_told_when_it_gives_something_after_all(seam: Hook[Any]) -> None:
    def block(loop: asyncio.AbstractEventLoop) -> None:
        assert isinstance(loop, VirtualTimeLoop)
        loop.block(7)

    passing = handler(seam, giving(lambda: None)) if seam.mode == "serial" else _passing_on(seam)

    async def late(*given: Any) -> object:
        block(asyncio.get_running_loop())
        return await passing(*given)

    async def late_chunks(*given: Any) -> Any:
        block(asyncio.get_running_loop())
        async for chunk in passing(*given):
            yield chunk

    recorded = run_in_virtual_time(assert_contained(seam, late_chunks if seam is STREAM else late, limit_s=7))
    assert {one.message for one in recorded} == {"it took longer than 7 s"}


@pytest.mark.parametrize("value", ANY_NONSENSE.values(), ids=ANY_NONSENSE.keys())
@pytest.mark.parametrize("seam", WAITING, ids=lambda seam: seam.name)
async def test_nonsense_is_refused_and_told(seam: Hook[Any], value: Callable[[], object]) -> None:
    for recorded in await assert_contained(seam, handler(seam, giving(value))):
        assert len(recorded.message) <= 500


@pytest.mark.parametrize(
    ("seam", "value"),
    [(seam, value) for seam, values in OWN_NONSENSE.items() for value in values],
    ids=[f"{seam.name}-{number}" for seam, values in OWN_NONSENSE.items() for number, _ in enumerate(values)],
)
async def test_what_only_looks_like_the_value_of_a_seam_is_refused_and_told(
    seam: Hook[Any], value: Callable[[], object]
) -> None:
    await assert_contained(seam, handler(seam, giving(value)))


def test_no_seam_is_without_nonsense_of_its_own() -> None:
    assert set(OWN_NONSENSE) == set(WAITING)


@pytest.mark.parametrize("kind", ["sync", "generator", "async generator", "coroutine"])
@pytest.mark.parametrize("seam", WAITING, ids=lambda seam: seam.name)
async def test_a_handler_of_the_wrong_kind_of_function_is_refused_and_told(seam: Hook[Any], kind: str) -> None:
    def sync(*given: object) -> object:
        return None

    def generator(*given: object) -> object:
        yield None

    async def async_generator(*given: object) -> object:
        yield None

    async def coroutine(*given: object) -> object:
        return None

    if kind == "coroutine" and seam.mode == "serial":
        return  # that is the right kind there
    kinds: dict[str, Any] = {
        "sync": sync,
        "generator": generator,
        "async generator": async_generator,
        "coroutine": coroutine,
    }
    recorded = await assert_contained(seam, kinds[kind])
    if kind in ("sync", "generator"):
        assert "its handler is no async" in recorded[0].message


async def test_a_failure_behind_a_wrapper_is_not_the_wrappers() -> None:
    async def around(call: object, rest: Callable[[], Awaitable[object]]) -> object:
        return await rest()

    provider = ScriptedProvider(calls(("a", "look", "{}")), says("ok"))
    plugins = together(
        plugin((EXECUTE, around), name="outer"),
        plugin((EXECUTE, handler(EXECUTE, RAISING["an exception"])), name="bad"),
    )
    async with scripted_session(ScriptedHost(provider, {"look": echo}), plugins=plugins) as session:
        await turn(session)
        assert failures(session) == [("bad", "tools/execute")]
