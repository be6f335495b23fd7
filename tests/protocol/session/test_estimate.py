"""The estimate of tokens: log.md section 9's formula, part by part."""

from __future__ import annotations

import pytest

from refold_protocol.session.estimate import estimate_block, estimate_message
from refold_protocol.session.messages import (
    Block,
    ImageBlock,
    Message,
    ReasoningBlock,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
)


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


def test_another_density_is_other_characters_a_token() -> None:
    assert estimate_block(TextBlock("abcd"), 1) == 8
    assert estimate_block(TextBlock("abcd"), 3.5) == 6
