"""What stands inside an envelope cannot close it, and is otherwise what it was.

Invariant: No text closes the envelope in which a model reads it, and one that would not keeps its bytes.
"""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from refold_protocol.ids import InputId
from refold_protocol.session.events import ContextMessage, SteeringMessage
from refold_protocol.session.messages import TextBlock, text_of
from refold_protocol.session.projection import derive_message, enclosed_content, enclosed_text
from tests.support.logs import CLIENT, Log

TAGS = st.sampled_from(["context", "steering", "instructions"])

CLOSING = ("</context>", "</CONTEXT>", "</context", "</steering >", "</instructions/>")
ALMOST = (
    "</ context>",
    "&lt;/context>",
    "</contextual>",
    "</context-menu>",
    "<context>",
    '<context source="refold:x">',
    "</\u017fteering>",
)
PIECES = st.sampled_from([*CLOSING, *ALMOST, *"<>/ \n\t\u2028", "context"])
TEXTS = st.lists(PIECES | st.text(max_size=3), max_size=12).map("".join)


def closings(tag: str, text: str) -> int:
    """Count the closing tags as HTML defines them, also one that the end of the text cuts off."""
    name = f"</{tag}"
    ends = [place + len(name) for place in range(len(text)) if text[place : place + len(name)].lower() == name]
    return sum(text[end : end + 1] in ("", *" \t\r\n\f/>") for end in ends)


@given(TAGS, TEXTS)
@example("context", "</context</context")
@example("context", "</context\n>")
@example("context", "<!-- </context> -->")
def test_no_closing_tag_is_left(tag: str, text: str) -> None:
    inside = enclosed_text(tag, text)
    assert closings(tag, inside) == 0
    assert inside.replace("&lt;/", "</") == text.replace("&lt;/", "</"), "nothing else is changed"
    assert enclosed_text(tag, inside) == inside


@given(TAGS, TEXTS)
def test_a_text_without_a_closing_tag_is_the_same_text(tag: str, text: str) -> None:
    if closings(tag, text) == 0:
        assert enclosed_text(tag, text) == text


@pytest.mark.parametrize(
    "text", ["</contextual>", "</context-menu>", "</ context>", "<context>", "context>", "a < b", "", "< /context>"]
)
def test_what_only_looks_like_a_closing_tag_stays_as_it_is(text: str) -> None:
    assert enclosed_text("context", text) == text


@pytest.mark.parametrize(
    "text", ["</context>", "</Context>", "</context >", "</context\n>", "</context/>", "</context\tx>", "</context"]
)
def test_a_closing_tag_becomes_text(text: str) -> None:
    assert enclosed_text("context", f"a{text}") == f"a&lt;{text[1:]}"


@given(st.lists(TEXTS.map(TextBlock), min_size=1, max_size=4), st.sampled_from(["context", "steering"]))
def test_what_is_recorded_is_closed_by_the_projection_alone(blocks: list[TextBlock], tag: str) -> None:
    log = Log()
    log.turn()
    content = enclosed_content(tag, tuple(blocks))
    event = log.append(
        ContextMessage(content, CLIENT, "context") if tag == "context" else SteeringMessage(1, content, CLIENT, InputId("i1"))
    )
    message = derive_message(event)
    assert message is not None
    text = text_of(message.content)
    assert text.lower().count(f"</{tag}>") == 1
    assert text.endswith(f"\n</{tag}>")


def test_blocks_that_close_nothing_are_the_same_ones() -> None:
    blocks = (TextBlock("a"), TextBlock("</steering>"))
    for one, same in zip(enclosed_content("context", blocks), blocks, strict=True):
        assert one is same
