"""Windows of models as a session learned them: what servers told, and what counts that cannot be show.

A local server with a small window throws the front of a longer prompt away, answers 200, and counts what is left. Such a count
is no anchor of a meter: it is smaller than any text of that length can be. It shows the window instead, at most: some servers
keep half of it. The bounds are far from honest counts, which long words, other scripts and white space make small. Pure.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from refold_protocol.session.append_only_list import AppendOnlyList
from refold_protocol.session.events import AssistantMessage, Event, ModelWindow
from refold_protocol.session.messages import EpochHeader, Message, ReasoningBlock, TextBlock, ToolCallBlock, ToolResultBlock
from refold_protocol.session.projection import derive_message

MOST_CHARACTERS: Final = 24
"""Characters of one token: no text of people or programs is that dense; runs of blanks come near."""

_USUAL_CHARACTERS: Final = (2, 8)
"""Characters of one token in most texts."""

_TEMPLATE_TOKENS: Final = 64
"""Tokens that a template adds to what is said, about."""

LEAST_READ: Final = 256
"""Tokens that are left of any prompt that was cut: a smaller count is none, or that of a server which counts otherwise."""

_KEPT_SHARE: Final = 2
"""Servers that cut keep the whole window or half of it."""


class LearnedWindow(Struct, frozen=True, gc=False):
    """What a session knows of the window of `provider/model`, in tokens: `told` by its server, `shown` by a count that cannot
    be. `read` is that count, of the reply at `seq`."""

    model: str
    told: int | None = None
    shown: int | None = None
    read: int | None = None
    seq: int = -1


Windows: TypeAlias = tuple[LearnedWindow, ...]
"""State of the fold: a row for each model of which something was learned."""


def window_of(windows: Windows, model: str) -> LearnedWindow:
    """Give what was learned of a model."""
    return next((row for row in windows if row.model == model), LearnedWindow(model))


def with_told(windows: Windows, data: ModelWindow) -> Windows:
    """Take what a server told. Where it is another window than before, what the old one showed is history."""
    known = window_of(windows, f"{data.provider}/{data.model}")
    if data.context_window < 1 or data.context_window == known.told:
        return windows
    shown = known.shown if known.told is None else None
    return _with(windows, replace(known, told=data.context_window, shown=shown))


def with_count(windows: Windows, model: str, tokens: int, seq: int) -> Windows:
    """Take a count that cannot be: the window is at most what it shows."""
    known = window_of(windows, model)
    shown = min(tokens * _KEPT_SHARE, known.shown or tokens * _KEPT_SHARE)
    return _with(windows, replace(known, shown=shown, read=tokens, seq=seq))


def without_disproved(windows: Windows, model: str, tokens: int) -> Windows:
    """Take a count that is larger than the window that was shown: the server has a larger one by now."""
    known = window_of(windows, model)
    if known.shown is None or tokens <= known.shown:
        return windows
    return _with(windows, replace(known, shown=None))


def can_be_whole(tokens: int, header: EpochHeader, nodes: AppendOnlyList[Event]) -> bool:
    """Tell whether a request of this header and history can have had so few tokens."""
    characters = _characters_of_header(header)
    if tokens * MOST_CHARACTERS >= characters + sum(len(node.line) for node in nodes):
        return True
    return tokens * MOST_CHARACTERS >= characters + sum(map(characters_of, nodes))


def can_extend(tokens: int, earlier: int, before: AppendOnlyList[Event], nodes: AppendOnlyList[Event]) -> bool:
    """Tell whether a request can have had so few tokens that goes on from one of `earlier` tokens, whose history was `before`.
    Templates drop earlier reasoning at a new prompt, so that of `before` may be missing; and some servers count only what they
    had not cached, which is what was added."""
    added = list(nodes.since(len(before)))
    if (tokens - earlier) * MOST_CHARACTERS >= sum(len(node.line) for node in added):
        return True
    characters, dropped = sum(map(characters_of, added)), sum(map(_characters_of_reasoning, before))
    if (tokens - earlier + dropped) * MOST_CHARACTERS >= characters:
        return True
    fewest, most = characters / _USUAL_CHARACTERS[1], characters / _USUAL_CHARACTERS[0] + _TEMPLATE_TOKENS
    return fewest <= tokens <= most


def characters_of(node: Event) -> int:
    """Count the characters of text that the model is sent of a node."""
    message = derive_message(node)
    return 0 if message is None else sum(map(_characters_of_block, message.content))


def _characters_of_block(block: object) -> int:
    match block:
        case TextBlock(text=text):
            return len(text)
        case ToolCallBlock(name=name, arguments=arguments):
            return len(name) + len(arguments)
        case ToolResultBlock(content=content):
            return sum(map(_characters_of_block, content))
        case _:  # reasoning is not sent to most servers, and an image has no text
            return 0


def _characters_of_reasoning(node: Event) -> int:
    if not isinstance(node.data, AssistantMessage):
        return 0
    return sum(len(block.text) for block in node.data.content if isinstance(block, ReasoningBlock))


def _characters_of_header(header: EpochHeader) -> int:
    messages: tuple[Message, ...] = header.message_prefix or ()
    prefix = sum(_characters_of_block(block) for message in messages for block in message.content)
    tools = sum(len(tool.name) + len(tool.description) + len(tool.parameters) for tool in header.tools or ())
    return len(header.system or "") + prefix + tools


def _with(windows: Windows, row: LearnedWindow) -> Windows:
    return (*(one for one in windows if one.model != row.model), row)
