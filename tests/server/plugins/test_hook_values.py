"""The way of a plugin's values into refold: copies of refold's own classes, frozen, and nothing that only looks like them."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

import pytest

from refold_protocol.session.messages import CallConfig, Message, TextBlock, text_content
from refold_server.plugins import Assembled, Block, Context, Deny, Submit, context
from refold_server.plugins.hook_values import frozen, frozen_config, frozen_contexts, frozen_decision, frozen_messages


class Mutable(Block, frozen=False):  # pyright: ignore[reportGeneralTypeIssues] - at run time it may
    """A plugin's own kind of decision, which it could change later."""

    more: int = 0


class Loud(Submit, frozen=True):
    """Says another thing each time that it is asked."""

    def __getattribute__(self, name: str) -> object:
        return text_content("a lie") if name == "content" else super().__getattribute__(name)


def test_a_class_of_the_plugins_own_becomes_the_class_of_the_seam() -> None:
    assert type(frozen_decision(Mutable("no", 1), Submit, Block)) is Block
    decision = frozen_decision(Loud(text_content("the truth")), Submit, Block)
    assert (type(decision), decision.content) == (Submit, text_content("the truth"))


def test_nothing_of_what_was_handed_over_is_shared() -> None:
    blocks = [TextBlock("one")]
    given = [Message("user", blocks)]  # type: ignore[arg-type]
    (message,) = frozen_messages(given)
    assert message == Message("user", (TextBlock("one"),))
    assert message is not given[0]
    assert type(message.content) is tuple


@pytest.mark.parametrize("value", [{context("x")}, iter([context("x")]), {"a": 1}, "text", b"", 7, object()])
def test_a_list_is_a_list_or_a_tuple(value: object) -> None:
    """A set has no order, and an iterator may never end."""
    with pytest.raises(TypeError, match="expects a list"):
        frozen_contexts(value)


@pytest.mark.parametrize("text", [b"bytes", bytearray(b"bytes"), Decimal("1.5"), 7, None, ["x"]])
def test_what_is_no_text_does_not_become_text(text: object) -> None:
    with pytest.raises(ValueError, match="is no Assembled"):
        frozen(Assembled(text, ()), Assembled)  # type: ignore[arg-type]


@pytest.mark.parametrize("tokens", [0, -1, 2**53, 10**400])
def test_a_number_of_tokens_is_one_that_every_reader_keeps(tokens: int) -> None:
    with pytest.raises(ValueError, match=r"max_tokens"):
        frozen_config(CallConfig("p", "m", "d", max_tokens=tokens))


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_a_number_is_not_dropped_in_silence(number: float) -> None:
    """A JSON writer that puts null for it would leave the setting out."""
    with pytest.raises(ValueError, match="is no CallConfig"):
        frozen_config(CallConfig("p", "m", "d", temperature=number))


@pytest.mark.parametrize(
    "make",
    [lambda: frozen_decision(Deny("x"), Submit, Block), lambda: frozen_decision(Deny, Deny), lambda: frozen_config(None)],
)
def test_the_value_of_another_seam_is_named(make: Callable[[], object]) -> None:
    with pytest.raises(TypeError, match="expects "):
        make()


class Markup(str):
    """Text of a library's own class, which says something else when it is asked."""

    def __str__(self) -> str:
        return "a lie"


def test_text_of_a_class_of_its_own_becomes_plain_text() -> None:
    (one,) = frozen_contexts([context(Markup("the truth"))])
    assert one == context("the truth")
    assert [type(block.text) for block in one.content if isinstance(block, TextBlock)] == [str]


def test_context_keeps_its_words_exactly() -> None:
    text = " line one\r\n\u2028\x00tab\t🙂 "
    assert frozen_contexts([Context([TextBlock(text)], raw=True)]) == (Context((TextBlock(text),), True),)  # type: ignore[arg-type]
