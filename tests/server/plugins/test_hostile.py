"""A hostile plugin at every seam: whatever it is given, each ordinary attempt to change it raises, and none is sent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from refold_protocol.json_text import JsonText
from refold_protocol.session.append_only_list import AppendOnlyList
from refold_protocol.session.messages import Chunk, Message, TextBlock, ToolCallBlock, ToolResultBlock, ToolSchema
from refold_server.plugins import (
    ASSEMBLE,
    EXECUTE,
    HOOKS,
    OBSERVE,
    POST_EXECUTE,
    PRE_EXECUTE,
    PRE_STEP,
    PROMPT_SUBMIT,
    REQUEST,
    SESSION_PREFIX,
    STREAM,
    SUMMARISE,
    TURN_STOP,
    Accept,
    Assembled,
    BeforeStep,
    Context,
    PluginRegistry,
    Submit,
    context,
)
from refold_server.plugins.hook_table import FLUSH, Hook
from refold_server.plugins.plugin_registry import Plugins, registered
from refold_server.sessions.session_registry import compact_session
from tests.support.hostility import Attempts
from tests.support.loop_host import ScriptedHost, ScriptedProvider, calls, says
from tests.support.loops import echo, scripted_session, turn
from tests.support.plugging import assert_rebuilt, failures, plugin, together, user

pytestmark = pytest.mark.anyio

KINDS = {
    PROMPT_SUBMIT: "serial",
    ASSEMBLE: "waterfall",
    SESSION_PREFIX: "waterfall",
    PRE_STEP: "serial",
    SUMMARISE: "waterfall",
    REQUEST: "waterfall",
    STREAM: "waterfall",
    PRE_EXECUTE: "serial",
    EXECUTE: "waterfall",
    POST_EXECUTE: "serial",
    TURN_STOP: "serial",
    OBSERVE: "observe",
    FLUSH: "observe",
}


def hostile(seam: Hook[Any], attempts: Attempts) -> Any:
    """A handler that attacks everything it is given, also what the rest of a chain gives, and then behaves."""
    if seam is STREAM:

        async def stream(outgoing: Any, rest: Callable[[Any], Any]) -> Any:
            attempts.on(seam.name, outgoing, rest)
            _grow(outgoing.request.history)
            async for chunk in rest(outgoing):
                attempts.on(seam.name, chunk)
                yield chunk

        return stream
    if seam.mode == "waterfall":

        async def around(payload: object, rest: Callable[[], Awaitable[object]]) -> object:
            attempts.on(seam.name, payload, rest)
            given = await rest()
            attempts.on(seam.name, given, rest)
            return given

        return around
    if seam.mode == "observe":

        def look(seen: object) -> None:
            attempts.on(seam.name, seen)

        return look

    async def decide(payload: object) -> None:
        attempts.on(seam.name, payload)

    return decide


def _grow(history: AppendOnlyList[Message]) -> None:
    """What is allowed: a tape grows into another one, and nobody else sees that."""
    assert len(history.then(user("a lie"))) == len(history) + 1


def well_behaved() -> Plugins:
    """A plugin that puts something of each kind into everything that the hostile one will meet."""

    async def compose(composing: object, rest: Callable[[], Awaitable[Sequence[Message]]]) -> Sequence[Message]:
        call = Message("assistant", (TextBlock("I look"), ToolCallBlock("p0", "look", "{}")))
        answer = Message("user", (ToolResultBlock("p0", (TextBlock("seen"),), False), TextBlock("and")))
        return [user("opener"), call, answer, *await rest()]

    async def assemble(assembling: object, rest: Callable[[], Awaitable[Assembled]]) -> Assembled:
        own = await rest()
        return replace(own, tools=(*own.tools, ToolSchema("mine", "d", JsonText('{"type":"object"}'))))

    async def submit(prompt: object) -> Submit:
        return Submit(context=(context("behind the prompt"),))

    async def ahead(step: BeforeStep) -> tuple[Context, ...]:
        return (context("before the step"),)

    async def accept(answered: object) -> Accept:
        return Accept(context=(context("behind the result"),))

    return plugin(
        (PROMPT_SUBMIT, submit),
        (ASSEMBLE, assemble),
        (SESSION_PREFIX, compose),
        (PRE_STEP, ahead),
        (POST_EXECUTE, accept),
        name="good",
    )


async def bodies(*plugins: Plugins) -> list[bytes]:
    """What the provider was sent in two turns with tools and a compaction between them, with these plugins around the
    well-behaved one."""
    answers = says("It is a long story. " * 85), says("A story."), says("again")
    scripts: list[list[Chunk]] = [calls(("a", "look", '{"n":1}'), ("b", "mine", "{}")), *answers]
    provider = ScriptedProvider(*scripts)
    before, after = plugins or (plugin(), plugin())
    host = ScriptedHost(provider, {"look": echo})
    host.window = 100_000
    async with scripted_session(host, plugins=together(before, well_behaved(), after)) as session:
        await turn(session, "one")
        await compact_session(session)
        await turn(session, "two")
        assert failures(session) == []
        assert_rebuilt(session, provider)
    return provider.bodies


@pytest.mark.parametrize("seam", HOOKS, ids=lambda seam: seam.name)
async def test_each_attempt_raises_and_none_reaches_the_wire(seam: Hook[Any]) -> None:
    """Invariant: Nothing that a plugin is given can be changed by ordinary means, at any seam."""
    attempts = Attempts()
    handler = hostile(seam, attempts)
    around = plugin((seam, handler), name="hostile"), plugin((seam, handler), name="hostile too")
    assert await bodies(*around) == await bodies()
    assert attempts.through == []
    assert attempts.objects[seam.name] > 1
    assert attempts.tried[seam.name] > 50 * attempts.objects[seam.name]


def test_this_page_knows_every_seam() -> None:
    assert {seam: seam.mode for seam in HOOKS} == KINDS


def test_seams_and_the_registry_cannot_be_changed_either() -> None:
    attempts = Attempts()
    kept: list[PluginRegistry] = []

    def register(registry: PluginRegistry) -> None:
        kept.append(registry)
        attempts.on("register", registry, HOOKS)

    registered("hostile", register)
    attempts.on("later", *kept)
    assert attempts.through == []
    assert attempts.objects["register"] > len(HOOKS)


def test_a_tape_has_no_attribute_that_can_be_assigned() -> None:
    tape = AppendOnlyList([user("one")])
    for name in ("_items", "_length", "evil"):
        with pytest.raises(AttributeError):
            setattr(tape, name, [])
        with pytest.raises(AttributeError):
            delattr(tape, name)
    assert list(tape) == [user("one")]
