"""What each contributor added to a prefix, also where one does more than put its own before the rest."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from refold_protocol.session.messages import Message
from refold_server.plugins import SESSION_PREFIX, PrefixRequest
from refold_server.plugins.hook_runner import PluginFailure
from refold_server.plugins.hook_table import NextPrefix
from refold_server.plugins.plugin_registry import PluginRegistry, Plugins, registered
from refold_server.plugins.session_hooks import NOWHERE, Composition, SessionHooks
from tests.support.plugging import user

pytestmark = pytest.mark.anyio

FAILURES: list[PluginFailure] = []


async def a(composing: PrefixRequest, rest: NextPrefix) -> Sequence[Message]:
    return [user("a1"), user("a2"), *await rest()]


async def b(composing: PrefixRequest, rest: NextPrefix) -> Sequence[Message]:
    return [user("b"), *await rest()]


async def last(composing: PrefixRequest, rest: NextPrefix) -> Sequence[Message]:
    return [*await rest(), user("last")]


async def silent(composing: PrefixRequest, rest: NextPrefix) -> Sequence[Message]:
    return await rest()


async def alone(composing: PrefixRequest, rest: NextPrefix) -> Sequence[Message]:
    return [user("alone")]


async def without_first(composing: PrefixRequest, rest: NextPrefix) -> Sequence[Message]:
    return (await rest())[1:]


async def turned(composing: PrefixRequest, rest: NextPrefix) -> Sequence[Message]:
    return [user("turned"), *reversed(await rest())]


async def broken(composing: PrefixRequest, rest: NextPrefix) -> Sequence[Message]:
    await rest()
    raise ValueError("no")


async def broken_at_once(composing: PrefixRequest, rest: NextPrefix) -> Sequence[Message]:
    raise ValueError("no")


class Named:
    """A contributor that is no function."""

    async def __call__(self, composing: PrefixRequest, rest: NextPrefix) -> Sequence[Message]:
        return [user("named"), *await rest()]


async def composition(*handlers: object) -> Composition:
    def register(registry: PluginRegistry) -> None:
        for handler in handlers:
            registry.on(SESSION_PREFIX, handler)  # type: ignore[arg-type]

    plugins: Plugins = registered("p", register)
    hooks = SessionHooks(plugins, NOWHERE, "/")
    FAILURES.clear()
    hooks.report = FAILURES.append
    return await hooks.session_prefix(hooks.place(1, 1))


def told(composition: Composition) -> list[tuple[str, tuple[Message, ...], int]]:
    return [(one.contributor, one.messages, one.removed) for one in composition.contributions]


async def test_each_one_s_messages_are_its_own_in_the_order_of_the_wire() -> None:
    made = await composition(a, b, Named())
    assert made.messages == (user("a1"), user("a2"), user("b"), user("named"))
    assert told(made) == [("a", (user("a1"), user("a2")), 0), ("b", (user("b"),), 0), ("Named", (user("named"),), 0)]


async def test_one_that_puts_its_message_last_is_told_last_and_those_without_a_word_behind_it() -> None:
    made = await composition(silent, last, b)
    assert told(made) == [("b", (user("b"),), 0), ("last", (user("last"),), 0), ("silent", (), 0)]


async def test_one_that_asks_nobody_is_all_there_is() -> None:
    made = await composition(a, alone, b)
    assert told(made) == [("a", (user("a1"), user("a2")), 0), ("alone", (user("alone"),), 0), ("b", (), 0)]


async def test_one_that_leaves_out_messages_of_others_is_found_out() -> None:
    made = await composition(without_first, a, b)
    assert told(made) == [("a", (user("a2"),), 0), ("b", (user("b"),), 0), ("without_first", (), 1)]


async def test_every_message_has_one_owner_also_where_they_were_turned_around() -> None:
    made = await composition(turned, a, b)
    owned = [message for one in made.contributions for message in one.messages]
    assert sorted(owned, key=str) == sorted(made.messages, key=str)
    assert len(made.messages) == 4


async def test_two_that_say_the_same_own_a_message_each() -> None:
    made = await composition(b, b)
    assert told(made) == [("b", (user("b"),), 0), ("b", (user("b"),), 0)]


async def test_what_one_passes_on_stays_that_of_who_said_it_also_where_it_says_the_same_first() -> None:
    async def b_and_more(composing: PrefixRequest, rest: NextPrefix) -> Sequence[Message]:
        return [user("b"), user("more"), *await rest()]

    made = await composition(b_and_more, b)
    assert told(made) == [("b_and_more", (user("b"), user("more")), 0), ("b", (user("b"),), 0)]


@pytest.mark.parametrize("handler", [broken, broken_at_once])
async def test_one_that_fails_adds_nothing_and_the_others_are_told(handler: object) -> None:
    made = await composition(a, handler, b)
    assert made.messages == (user("a1"), user("a2"), user("b"))
    assert [(name, len(messages)) for name, messages, _ in told(made)][:2] == [("a", 2), ("b", 1)]
    assert [failure.plugin for failure in FAILURES] == ["p"]


async def test_nothing_said_is_nothing() -> None:
    assert await composition() == Composition(())
    assert (await composition(silent)).messages == ()
