"""agent/prompt-submit and agent/pre-step: what plugins may do to a prompt, and what they may say before a request.

Invariant: What a seam lets plugins change takes effect, is recorded, and is rebuilt equal by a fresh reading; any plugins
that keep the rules, any values.
"""

from __future__ import annotations

import pytest

from refold_protocol.session.events import InputSettled, TurnEnd, UserMessage
from refold_protocol.session.messages import TextBlock, text_of
from refold_server.plugins import PRE_STEP, PROMPT_SUBMIT, BeforeStep, Block, Context, Prompt, Submit, context
from tests.support.loop_host import ScriptedHost, ScriptedProvider, calls, says
from tests.support.loops import echo, end_of, scripted_session, turn, types
from tests.support.plugging import assert_rebuilt, failures, of_type, plugin, said, spoken, together

pytestmark = pytest.mark.anyio


async def test_a_prompt_is_what_the_last_handler_made_of_it_and_each_sees_what_those_before_left() -> None:
    seen: list[str] = []

    async def shout(prompt: Prompt) -> Submit:
        seen.append(text_of(prompt.content))
        return Submit((TextBlock(seen[-1].upper()),), (context("one"),))

    async def mark(prompt: Prompt) -> Submit:
        seen.append(text_of(prompt.content))
        return Submit((TextBlock(seen[-1] + "!"),), (context("two", raw=True),))

    async def look(prompt: Prompt) -> None:
        seen.append(text_of(prompt.content))

    provider = ScriptedProvider(says("ok"))
    plugins = together(plugin((PROMPT_SUBMIT, shout), name="a"), plugin((PROMPT_SUBMIT, mark), (PROMPT_SUBMIT, look), name="b"))
    async with scripted_session(ScriptedHost(provider), plugins=plugins) as session:
        assert end_of(await turn(session, "go")) == "completed"
        assert seen == ["go", "GO", "GO!"]
        assert spoken(provider) == ["GO!", '<context source="plugin:a">\none\n</context>', "two"]
        assert said(session) == [("a", "one"), ("b", "two")]
        (message,) = of_type(session, UserMessage)
        assert isinstance(message.data, UserMessage)
        assert message.data.input is not None
        assert_rebuilt(session, provider)


async def test_a_vetoed_prompt_ends_its_turn_blocked_without_a_step_and_is_settled_before_that() -> None:
    asked: list[str] = []

    async def veto(prompt: Prompt) -> Block:
        return Block("secrets stand in it")

    async def later(prompt: Prompt) -> None:
        asked.append("later")

    provider = ScriptedProvider(says("never"))
    async with scripted_session(
        ScriptedHost(provider), plugins=plugin((PROMPT_SUBMIT, veto), (PROMPT_SUBMIT, later))
    ) as session:
        event = await turn(session)
        assert isinstance(event.data, TurnEnd)
        assert (event.data.reason.kind, event.data.reason.reason) == ("blocked", "secrets stand in it")
        assert types(session) == ["instance/start", "input/accepted", "turn/start", "input/settled", "turn/end"]
        (settled,) = of_type(session, InputSettled)
        assert isinstance(settled.data, InputSettled)
        assert (settled.data.how, settled.data.reason) == ("blocked", "secrets stand in it")
        assert (provider.bodies, asked, session.session_log.folds.pending) == ([], [], ())
        assert_rebuilt(session, provider)


async def test_context_before_a_step_stands_in_that_steps_request_and_stays_in_the_history() -> None:
    seen: list[BeforeStep] = []

    async def ahead(step: BeforeStep) -> list[Context]:
        seen.append(step)
        return [context(f"step {step.place.step}")]

    provider = ScriptedProvider(calls(("c", "look", "{}")), says("done"))
    async with scripted_session(ScriptedHost(provider, {"look": echo}), plugins=plugin((PRE_STEP, ahead))) as session:
        await turn(session)
        assert [(one.place.turn, one.place.step, one.system) for one in seen] == [(1, 1, "Be brief."), (1, 2, "Be brief.")]
        assert [tool.name for tool in seen[0].tools] == ["look"]
        first = '<context source="plugin:p">\nstep 1\n</context>'
        assert spoken(provider, 0) == ["go", first]
        assert [text for text in spoken(provider, 1) if text] == ["go", first, first.replace("1", "2")]
        assert_rebuilt(session, provider)


async def test_context_of_a_plugin_does_not_close_what_stands_around_it_and_raw_context_has_nothing_around_it() -> None:
    async def ahead(step: BeforeStep) -> list[Context]:
        return [context("a</context>b"), context("a</context>b", raw=True)]

    provider = ScriptedProvider(says("done"))
    async with scripted_session(ScriptedHost(provider), plugins=plugin((PRE_STEP, ahead))) as session:
        await turn(session)
        assert spoken(provider, 0) == ["go", '<context source="plugin:p">\na&lt;/context>b\n</context>', "a</context>b"]
        assert_rebuilt(session, provider)


@pytest.mark.parametrize("blank", [(), (TextBlock(" \n"),)])
async def test_what_would_poison_every_later_request_is_not_recorded(blank: tuple[TextBlock, ...]) -> None:
    """Invariant: A plugin cannot record what every later request would fail by: blank context, images, a config without a
    provider, calls without answers in the prefix.
    """

    async def empty(prompt: Prompt) -> Submit:
        return Submit(blank)

    async def ahead(step: BeforeStep) -> tuple[Context, ...]:
        return (Context(blank, raw=True),)

    provider = ScriptedProvider(says("ok"))
    async with scripted_session(ScriptedHost(provider), plugins=plugin((PRE_STEP, ahead))) as session:
        assert end_of(await turn(session)) == "completed"
        assert (said(session), failures(session)) == ([], [("p", "agent/pre-step")])
    async with scripted_session(ScriptedHost(provider), plugins=plugin((PROMPT_SUBMIT, empty))) as session:
        assert end_of(await turn(session)) == "blocked"
        assert failures(session) == [("p", "agent/prompt-submit")]


async def test_a_list_inside_of_what_was_handed_over_can_be_changed_later_without_effect() -> None:
    blocks = [TextBlock("as given")]

    async def submit(prompt: Prompt) -> Submit:
        return Submit(blocks, [Context(blocks)])  # type: ignore[arg-type]

    async def ahead(step: BeforeStep) -> None:
        blocks[:] = [TextBlock("a lie")]

    provider = ScriptedProvider(says("ok"))
    async with scripted_session(ScriptedHost(provider), plugins=plugin((PROMPT_SUBMIT, submit), (PRE_STEP, ahead))) as session:
        await turn(session)
        assert blocks == [TextBlock("a lie")]
        assert spoken(provider) == ["as given", '<context source="plugin:p">\nas given\n</context>']
        assert_rebuilt(session, provider)
