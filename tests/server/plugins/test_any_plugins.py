"""Any plugins that keep to their seams' rules, any values: the log verifies and gives each request again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from refold_protocol.json_text import JsonText
from refold_protocol.session.messages import CallConfig, Chunk, Message, TextDelta, ToolSchema, text_content
from refold_server.plugins import (
    ASSEMBLE,
    EXECUTE,
    POST_EXECUTE,
    PRE_EXECUTE,
    PRE_STEP,
    PROMPT_SUBMIT,
    REQUEST,
    SESSION_PREFIX,
    STREAM,
    TURN_STOP,
    Accept,
    Assembled,
    Block,
    Context,
    Deny,
    GoOn,
    PluginRegistry,
    Stop,
    Submit,
)
from refold_server.plugins.hook_table import Hook
from refold_server.plugins.plugin_registry import Plugins, registered
from refold_server.tools.tool_runner import ToolAnswer
from tests.support.loop_host import ScriptedHost, ScriptedProvider, calls, says
from tests.support.loops import echo, scripted_session, turn
from tests.support.memory_store import MemoryStore
from tests.support.plugging import assert_rebuilt, failures, together

WORDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12).filter(lambda text: bool(text.strip()))
CONTENT = WORDS.map(text_content)
CONTEXT = st.lists(st.builds(Context, CONTENT, st.booleans()), max_size=2).map(tuple)
SAID = st.lists(st.builds(Context, CONTENT, st.booleans()), min_size=1, max_size=2).map(tuple)
ANSWERS = st.builds(ToolAnswer, CONTENT, st.booleans(), meta=st.sampled_from([None, JsonText('{"a":[1,2.50]}')]))
NAMES = st.sampled_from(["look", "mine", "other"])
TOOLS = st.lists(
    st.builds(ToolSchema, NAMES, st.text(st.characters(exclude_categories=["Cs"])), st.just(JsonText('{"type": "object"}'))),
    max_size=3,
    unique_by=lambda tool: tool.name,
)
PREFIXES = st.lists(st.builds(Message, st.sampled_from(["user", "assistant"]), CONTENT), max_size=3)
CONFIGS = st.fixed_dictionaries(
    {},
    optional={
        "model": st.sampled_from(["small", "large"]),
        "temperature": st.floats(0, 2),
        "top_p": st.sampled_from([0, 1, 0.5]),
        "max_tokens": st.integers(1, 2**53 - 1),
        "stop": st.lists(WORDS, max_size=2),
        "reasoning_effort": st.sampled_from(["low", "high"]),
    },
)

VALUES: dict[Hook[Any], st.SearchStrategy[Any]] = {
    PROMPT_SUBMIT: st.none() | st.builds(Submit, st.none() | CONTENT, CONTEXT) | st.builds(Block, WORDS),
    ASSEMBLE: st.builds(Assembled, WORDS | st.just(""), TOOLS),
    SESSION_PREFIX: PREFIXES,
    PRE_STEP: st.none() | CONTEXT,
    REQUEST: CONFIGS,
    STREAM: WORDS,
    PRE_EXECUTE: st.none() | st.builds(Deny, WORDS),
    EXECUTE: st.none() | ANSWERS,
    POST_EXECUTE: st.none() | st.builds(Accept, st.none() | ANSWERS, CONTEXT),
    TURN_STOP: st.none() | st.builds(Stop, WORDS) | st.builds(GoOn, SAID),
}


class Plan(Struct, frozen=True):
    """What one handler says, call after call, beginning anew behind the last."""

    plugin: str
    seam: Hook[Any]
    values: list[Any]


PLANS = st.sampled_from(list(VALUES)).flatmap(
    lambda seam: st.builds(Plan, st.sampled_from(["a", "b"]), st.just(seam), st.lists(VALUES[seam], min_size=1, max_size=3))
)


def merged(seam: Hook[Any], rest: Any, value: Any) -> Any:
    """What a contributor makes of what the rest gave and its own value."""
    if seam is SESSION_PREFIX:
        return [*value, *rest]
    if seam is REQUEST:
        assert isinstance(rest, CallConfig)
        return replace(rest, **value)
    return rest if value is None else value


def handler(plan: Plan) -> Any:
    said = 0

    def following() -> Any:
        nonlocal said
        said += 1
        return plan.values[(said - 1) % len(plan.values)]

    async def decide(payload: object) -> Any:
        await anyio.lowlevel.checkpoint()
        return following()

    async def around(payload: object, rest: Callable[[], Awaitable[object]]) -> Any:
        return merged(plan.seam, await rest(), following())

    async def wrap(outgoing: Any, rest: Callable[[Any], Any]) -> Any:
        mark = following()
        chunk: Chunk
        async for chunk in rest(outgoing):
            yield replace(chunk, text=chunk.text + mark) if isinstance(chunk, TextDelta) else chunk

    return wrap if plan.seam is STREAM else around if plan.seam.mode == "waterfall" else decide


def plugins_of(plans: list[Plan]) -> Plugins:
    def register(registry: PluginRegistry) -> None:
        for plan in plans:
            if plan.plugin == registry.plugin:
                registry.on(plan.seam, handler(plan))

    return together(registered("a", register), registered("b", register))


async def live(plans: list[Plan]) -> None:
    """Two instances of one session, each with two turns, proven after each."""
    store = MemoryStore(clock=lambda: 1_000)
    scripts = [calls(("x", "look", '{"n":1}'), ("y", "mine", "{}")), says("ok", "then"), says("more")]
    provider = ScriptedProvider(*scripts * 20)
    host = ScriptedHost(provider, {"look": echo}, steps=4)
    for _ in range(2):
        async with scripted_session(host, store=store, plugins=plugins_of(plans)) as session:
            await turn(session, "one")
            await turn(session, "two")
            assert failures(session) == []
            assert_rebuilt(session, provider)


@given(st.lists(PLANS, max_size=8))
def test_any_plugins_that_keep_the_rules_give_a_log_that_explains_every_request(plans: list[Plan]) -> None:
    anyio.run(live, plans)
