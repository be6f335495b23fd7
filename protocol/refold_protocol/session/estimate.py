"""Owns the estimate of what a request costs in tokens where no provider counted it: log.md section 9's formula.

Blocks, messages and headers are priced here and nowhere else: the meter, compaction and `prefix/compose` all ask here.
Pure; knows no model's window. How many characters make a token is `density.py`'s matter.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Raw, Struct

from refold_protocol.session.density import Density
from refold_protocol.session.header_types import EpochHeader, ToolSchema
from refold_protocol.session.messages import (
    Block,
    ImageBlock,
    Message,
    ReasoningBlock,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    encode_compact,
)

FLAT: Final = Density()
"""Four characters a token, whatever the script."""

_FRAME: Final = 4
"""Tokens that a block, a message, the system text or the list of tools costs beside its text."""


def estimate_message(message: Message, density: Density = FLAT) -> int:
    """Estimate the tokens of a message."""
    return _FRAME + sum(estimate_block(block, density) for block in message.content)


def estimate_messages(messages: Iterable[Message], density: Density = FLAT) -> int:
    """Estimate the tokens of several messages."""
    return sum(estimate_message(message, density) for message in messages)


def estimate_block(block: Block, density: Density = FLAT) -> int:
    """Estimate the tokens of a block. An image counts as a frame: nothing in the log says what it costs."""
    match block:
        case TextBlock(text=text) | ReasoningBlock(text=text):
            return density.tokens(text) + _FRAME
        case ToolCallBlock(name=name, arguments=arguments):
            return density.tokens(name) + density.tokens(arguments) + _FRAME
        case ToolResultBlock(content=content):
            return sum(estimate_block(inner, density) for inner in content) + _FRAME
        case ImageBlock():
            return _FRAME


def estimate_header(header: EpochHeader, density: Density = FLAT) -> int:
    """Estimate the tokens of what stands before the history: system text, tools, message prefix. Call config costs none."""
    tokens = estimate_messages(header.message_prefix or (), density)
    if header.system:
        tokens += density.tokens(header.system) + _FRAME
    if header.tools:
        tokens += density.tokens(_written(header.tools)) + _FRAME
    return tokens


class _Tool(Struct, frozen=True):
    """A tool as models read it: its schema is JSON, not a text that holds JSON."""

    name: str
    description: str
    parameters: Raw


def _written(tools: tuple[ToolSchema, ...]) -> str:
    read = tuple(_Tool(tool.name, tool.description, Raw(tool.parameters.encode())) for tool in tools)
    return encode_compact(read).decode()
