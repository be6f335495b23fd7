"""system-prompt/assemble and agent/request: what stands beside the history, by step; tools are frozen per instance."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from refold_protocol.json_text import JsonText
from refold_protocol.session.events import ToolResult
from refold_protocol.session.messages import CallConfig, ToolSchema
from refold_protocol.session.request import sent_requests
from refold_server.plugins import ASSEMBLE, REQUEST, Assembled, Assembling, ConfigRequest
from refold_server.plugins.hook_table import NextAssembled, NextConfig
from refold_server.sessions.session import Session
from refold_server.sessions.session_settings import SettingsPatch
from tests.support.loop_host import ScriptedHost, ScriptedProvider, calls, says
from tests.support.loops import echo, end_of, last, scripted_session, turn
from tests.support.memory_store import MemoryStore
from tests.support.plugging import assert_rebuilt, failures, plugin, together

pytestmark = pytest.mark.anyio


def tools_sent(provider: ScriptedProvider) -> list[tuple[str, str]]:
    """Names and descriptions of the tools in the last request."""
    return [(tool.name, tool.description) for tool in provider.requests[-1].header.tools or ()]


def headers_of(session: Session) -> list[str | None]:
    """The system text of each request, by the fold."""
    return [request.header.system for _, _, request in sent_requests(session.session_log.handle.read())]


async def test_the_system_text_may_change_with_each_step_and_the_header_in_force_says_so() -> None:
    async def count(assembling: Assembling, rest: NextAssembled) -> Assembled:
        offered = await rest()
        return replace(offered, system=f"{offered.system}\nstep {assembling.place.step}")

    provider = ScriptedProvider(calls(("c", "look", "{}")), says("done"))
    async with scripted_session(ScriptedHost(provider, {"look": echo}), plugins=plugin((ASSEMBLE, count))) as session:
        await turn(session)
        assert headers_of(session) == ["Be brief.\nstep 1", "Be brief.\nstep 2"]
        assert_rebuilt(session, provider)


async def test_the_first_registered_handler_has_the_last_word() -> None:
    async def outer(assembling: Assembling, rest: NextAssembled) -> Assembled:
        inner = await rest()
        return replace(inner, system=f"outer({inner.system})")

    async def inner(assembling: Assembling, rest: NextAssembled) -> Assembled:
        own = await rest()
        return replace(own, system=f"inner({own.system})")

    provider = ScriptedProvider(says("ok"))
    plugins = together(plugin((ASSEMBLE, outer), name="a"), plugin((ASSEMBLE, inner), name="b"))
    async with scripted_session(ScriptedHost(provider), plugins=plugins) as session:
        await turn(session)
        assert headers_of(session) == ["outer(inner(Be brief.))"]
        assert_rebuilt(session, provider)


async def test_tools_that_come_or_change_later_wait_for_the_next_break() -> None:
    offered = [ToolSchema("mine", "old", JsonText('{"type":"object"}'))]

    async def assemble(assembling: Assembling, rest: NextAssembled) -> Assembled:
        own = await rest()
        return replace(own, tools=(*own.tools, *offered))

    provider = ScriptedProvider(*(says("ok") for _ in range(4)))
    host = ScriptedHost(provider, {"look": echo})
    async with scripted_session(host, plugins=plugin((ASSEMBLE, assemble))) as session:
        await turn(session)
        before = [("look", "does look"), ("mine", "old")]
        assert tools_sent(provider) == before
        offered[:] = [ToolSchema("mine", "new", JsonText("{}")), ToolSchema("more", "more", JsonText("{}"))]
        host.bodies["late"] = echo
        await turn(session)
        assert tools_sent(provider) == before
        await session.configure(SettingsPatch(model="large"))
        await turn(session)
        assert tools_sent(provider) == [("look", "does look"), ("mine", "new"), ("late", "does late"), ("more", "more")]
        await turn(session)
        assert len(tools_sent(provider)) == 4
        assert_rebuilt(session, provider)


async def test_new_tools_join_at_once_when_the_user_asks_for_it() -> None:
    provider = ScriptedProvider(says("ok"), says("ok"))
    host = ScriptedHost(provider, {"look": echo})
    async with scripted_session(host) as session:
        await turn(session)
        host.bodies["late"] = echo
        await session.configure(SettingsPatch(tools_now=True))
        await turn(session)
        assert [name for name, _ in tools_sent(provider)] == ["look", "late"]
        assert_rebuilt(session, provider)


async def test_the_next_instance_takes_the_tools_of_its_time_behind_those_that_were_there() -> None:
    store = MemoryStore(clock=lambda: 1_000)
    provider = ScriptedProvider(says("ok"), says("ok"))
    host = ScriptedHost(provider, {"b": echo})
    async with scripted_session(host, store=store) as session:
        await turn(session)
    host.bodies.clear()
    host.bodies.update(a=echo, b=echo)
    async with scripted_session(host, store=store) as session:
        await turn(session)
        assert [name for name, _ in tools_sent(provider)] == ["b", "a"]
        assert_rebuilt(session, provider)


async def test_a_tool_that_vanished_keeps_its_schema_and_answers_with_an_error() -> None:
    provider = ScriptedProvider(says("ok"), calls(("c", "look", "{}")), says("sorry"))
    host = ScriptedHost(provider, {"look": echo})
    async with scripted_session(host) as session:
        await turn(session)
        del host.bodies["look"]
        assert end_of(await turn(session)) == "completed"
        assert tools_sent(provider) == [("look", "does look")]
        result = last(session, ToolResult)
        assert isinstance(result, ToolResult)
        assert result.is_error
        assert result.error is not None
        assert result.error.code == "UNKNOWN_TOOL"
        assert_rebuilt(session, provider)


@pytest.mark.parametrize(
    "tools",
    [
        (ToolSchema("t", "", JsonText("{}")), ToolSchema("t", "", JsonText("{}"))),
        (ToolSchema("t", "", JsonText("[]")),),
        (ToolSchema("t", "", JsonText('{"a":NaN}')),),
        (ToolSchema(" ", "", JsonText("{}")),),
        (ToolSchema("t", "\ud800", JsonText("{}")),),
    ],
)
async def test_tools_that_no_provider_takes_are_left_out_and_blamed(tools: tuple[ToolSchema, ...]) -> None:
    async def assemble(assembling: Assembling, rest: NextAssembled) -> Assembled:
        return replace(await rest(), tools=tools)

    provider = ScriptedProvider(says("ok"))
    async with scripted_session(ScriptedHost(provider), plugins=plugin((ASSEMBLE, assemble))) as session:
        assert end_of(await turn(session)) == "completed"
        assert tools_sent(provider) == []
        assert failures(session) == [("p", "system-prompt/assemble")]


async def test_a_request_handler_replaces_the_call_config_and_the_next_step_begins_with_it() -> None:
    seeds: list[float | None] = []

    async def warm(routing: ConfigRequest, rest: NextConfig) -> CallConfig:
        config = await rest()
        seeds.append(config.temperature)
        return replace(config, temperature=0.5, stop=["END"])  # a list in a tuple's place

    provider = ScriptedProvider(says("ok"), says("ok"))
    async with scripted_session(ScriptedHost(provider), plugins=plugin((REQUEST, warm))) as session:
        await turn(session)
        await turn(session)
        assert seeds == [None, 0.5]
        assert provider.requests[0].header.config.stop == ("END",)
        assert provider.requests[0].header.config == provider.requests[1].header.config
        assert_rebuilt(session, provider)


@pytest.mark.parametrize(
    "change",
    [
        {"provider": "nobody"},
        {"dialect": "klingon"},
        {"dialect_options": "[]"},
        {"dialect_options": '{"include_usage":"perhaps"}'},
        {"extra": "[1]"},
        {"extra": '{"a":NaN}'},
        {"temperature": float("nan")},
        {"temperature": "hot"},
        {"model": "\ud800"},
        {"model": b"bytes"},
        {"stop": "END"},
    ],
)
async def test_a_config_that_no_request_can_be_made_with_is_not_recorded(change: dict[str, object]) -> None:
    """Recorded, it would be what each later step begins with, long after the plugin was mended."""

    async def break_it(routing: ConfigRequest, rest: NextConfig) -> CallConfig:
        return replace(await rest(), **change)

    provider = ScriptedProvider(says("ok"))
    async with scripted_session(ScriptedHost(provider), plugins=plugin((REQUEST, break_it))) as session:
        assert end_of(await turn(session)) == "completed"
        assert failures(session) == [("p", "agent/request")]
        assert provider.requests[0].header.config == session.instance.host.call_config(session.session_log.folds.settings)
        assert_rebuilt(session, provider)


async def test_a_handler_that_asks_for_the_rest_a_second_time_is_left_out() -> None:
    async def twice(routing: ConfigRequest, rest: NextConfig) -> CallConfig:
        await rest()
        return replace(await rest(), model="other")

    provider = ScriptedProvider(says("ok"))
    async with scripted_session(ScriptedHost(provider), plugins=plugin((REQUEST, twice))) as session:
        assert end_of(await turn(session)) == "completed"
        assert failures(session) == [("p", "agent/request")]
        assert provider.requests[0].header.config.model == "small"


async def test_text_is_never_made_of_what_is_none() -> None:
    async def bytes_for_text(assembling: Assembling, rest: NextAssembled) -> Assembled:
        return Assembled(b"Be evil.", ())  # type: ignore[arg-type]

    provider = ScriptedProvider(says("ok"))
    async with scripted_session(ScriptedHost(provider), plugins=plugin((ASSEMBLE, bytes_for_text))) as session:
        await turn(session)
        assert headers_of(session) == ["Be brief."]
        assert failures(session) == [("p", "system-prompt/assemble")]
