"""Owns the estimate of what messages cost in tokens where no provider counted them: log.md section 9's formula.

The unit of text is the Unicode code point, so that the estimate depends on no encoding. Pure; knows no model's window.
"""

from __future__ import annotations

from math import ceil
from typing import Final

from refold_protocol.session.messages import (
    Block,
    ImageBlock,
    Message,
    ReasoningBlock,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
)

CHARACTERS_PER_TOKEN: Final = 4.0
"""The density of text where nothing else is known of a model."""

_FRAME: Final = 4
"""Tokens that a block, or a message, costs beside its text."""


def estimate_message(message: Message, density: float = CHARACTERS_PER_TOKEN) -> int:
    """Estimate the tokens of a message, where `density` is characters a token."""
    return sum(estimate_block(block, density) for block in message.content) + _FRAME


def estimate_block(block: Block, density: float = CHARACTERS_PER_TOKEN) -> int:
    """Estimate the tokens of a block. An image counts as a frame: nothing in the log says what it costs."""
    match block:
        case TextBlock(text=text) | ReasoningBlock(text=text):
            return ceil(len(text) / density) + _FRAME
        case ToolCallBlock(name=name, arguments=arguments):
            return ceil(len(name) / density) + ceil(len(arguments) / density) + _FRAME
        case ToolResultBlock(content=content):
            return sum(estimate_block(inner, density) for inner in content) + _FRAME
        case ImageBlock():
            return _FRAME
