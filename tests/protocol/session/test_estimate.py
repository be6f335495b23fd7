"""The estimate of tokens, part by part."""

from __future__ import annotations

import pytest

from refold_protocol.json_text import JsonText
from refold_protocol.session.messages import (
    Block,
    CallConfig,
    EpochHeader,
    ImageBlock,
    Message,
    ReasoningBlock,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    ToolSchema,
)
from refold_protocol.session.token_estimate import Density, estimate_block, estimate_header, estimate_message, estimate_messages


@pytest.mark.parametrize(
    ("block", "tokens"),
    [
        (TextBlock(""), 4),
        (TextBlock("abcd"), 5),
        (TextBlock("abcde"), 6),
        (TextBlock("😋😋😋😋"), 5),
        (ReasoningBlock("abcde"), 6),
        (ToolCallBlock("id", "abcde", "{}"), 7),
        (ToolResultBlock("id", (TextBlock("abcd"), TextBlock("")), is_error=False), 13),
        (ImageBlock("image/png", "0" * 64), 4),
    ],
)
def test_a_block_costs_its_text_and_a_frame(block: Block, tokens: int) -> None:
    assert estimate_block(block) == tokens


def test_a_message_costs_its_blocks_and_a_frame_of_its_own() -> None:
    assert estimate_message(Message("user", (TextBlock("abcd"), TextBlock("abcd")))) == 14


def test_several_messages_cost_their_sum() -> None:
    assert estimate_messages((Message("user", (TextBlock("abcd"),)), Message("assistant", ()))) == 9 + 4


def test_another_density_is_other_characters_a_token() -> None:
    assert estimate_block(TextBlock("abcd"), Density(1)) == 8
    assert estimate_block(TextBlock("abcd"), Density(3.5)) == 6


def test_a_header_costs_its_system_text_its_tools_as_json_and_its_prefix() -> None:
    config = CallConfig("engine", "chain", "chat-completions", stop=("never counted",))
    tool = ToolSchema("look", "Look é.", JsonText('{"type":"object"}'))
    written = '[{"name":"look","description":"Look é.","parameters":{"type":"object"}}]'
    assert estimate_header(EpochHeader(config)) == 0
    assert estimate_header(EpochHeader(config, "abcde")) == 2 + 4
    assert estimate_header(EpochHeader(config, tools=(tool,)), Density(1)) == len(written) + 4
    assert estimate_header(EpochHeader(config, message_prefix=(Message("user", (TextBlock("abcd"),)),))) == 9
    assert estimate_header(EpochHeader(config, "", (), ())) == 0
