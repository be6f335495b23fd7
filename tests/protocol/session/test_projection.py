"""What the model sees of an event: held by golden files, one for each way in which a surface type is treated."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw, Struct

from refold_protocol.errors import SessionFormatUnsupportedError
from refold_protocol.session.codec import decode_event, seal
from refold_protocol.session.events import EVENT_TYPES, SURFACE_TYPES, AssistantMessage, ContextMessage, Draft, SteeringMessage
from refold_protocol.session.messages import (
    Block,
    Message,
    ReasoningBlock,
    Source,
    TextBlock,
    ToolCallBlock,
    encode_compact,
    text_content,
)
from refold_protocol.session.projection import derive_message, is_visible
from tests.support import event_examples, strategies
from tests.support.logs import CLIENT, Log
from tests.support.projection_examples import EXAMPLES, GOLDEN, event, golden_bytes, golden_file


class _Golden(Struct):
    event: Raw
    message: Raw


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_recorded_event_is_to_the_model_today_what_it_was(name: str) -> None:
    golden = msgspec.json.decode(golden_file(name).read_bytes(), type=_Golden)
    message = derive_message(decode_event(bytes(golden.event)))
    assert encode_compact(message) == bytes(golden.message)
    assert message == msgspec.json.decode(golden.message, type=Message | None)


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_golden_file_of_an_example_is_written_today_as_it_was(name: str) -> None:
    assert golden_bytes(name) == golden_file(name).read_bytes()


def test_there_is_a_golden_file_for_each_example_and_an_example_for_each_surface_type() -> None:
    assert set(GOLDEN.iterdir()) == {golden_file(name) for name in EXAMPLES}
    assert {event(name).type for name in EXAMPLES} == SURFACE_TYPES


@pytest.mark.parametrize("name", sorted(EVENT_TYPES.keys() - SURFACE_TYPES))
def test_an_event_that_is_not_on_the_surface_is_no_message(name: str) -> None:
    assert derive_message(event_examples.example(name)) is None


def test_an_envelope_that_is_not_known_is_refused_and_not_guessed() -> None:
    log = Log()
    log.turn()
    with pytest.raises(SessionFormatUnsupportedError, match="envelope 'note'") as caught:
        log.append(ContextMessage(text_content("CI is red."), CLIENT, "note"))
    assert caught.value.details == {"seq": 2}


@given(strategies.texts(), st.sampled_from(["context", "steering"]))
def test_a_source_never_ends_its_own_quotes_or_opens_a_tag(name: str, tag: str) -> None:
    log = Log()
    log.turn()
    source = Source("plugin", name)
    if tag == "context":
        message = derive_message(log.append(ContextMessage(text_content("said"), source, "context")))
    else:
        message = derive_message(log.append(SteeringMessage(1, text_content("said"), source)))
    assert message is not None
    (block,) = message.content
    assert isinstance(block, TextBlock)
    opening, _, rest = block.text.removeprefix(f'<{tag} source="').partition('">\nsaid\n')
    assert rest == f"</{tag}>"
    assert not set(opening) & {'"', "<"}
    assert opening.replace("&quot;", '"').replace("&lt;", "<").replace("&amp;", "&") == f"plugin:{name}"


@given(st.lists(strategies.structs(TextBlock) | strategies.structs(ReasoningBlock) | strategies.structs(ToolCallBlock)))
def test_a_reply_is_seen_when_it_says_something_or_calls_something(blocks: list[Block]) -> None:
    """B-03: an assistant message without visible content is in no request."""
    said = "".join(block.text for block in blocks if isinstance(block, TextBlock))
    seen = said.strip() != "" or any(isinstance(block, ToolCallBlock) for block in blocks)
    assert is_visible(tuple(blocks)) == seen
    reply = AssistantMessage(1, 1, tuple(blocks), "engine", "chain", "stop")
    message = derive_message(seal(Draft(reply, "append"), 0, 0))
    assert message == (Message("assistant", tuple(blocks)) if seen else None)
