"""Owns what may stand inside an envelope such as `<context source="…">…</context>`: nothing that closes it.

A file or a program must not be able to end the envelope and go on as somebody else. The projection puts the envelope around
what is recorded, and never changes; so this is applied where content comes in. A text without a closing tag keeps its bytes.
Pure.
"""

from __future__ import annotations

import re
from functools import cache

from msgspec.structs import replace

from refold_protocol.session.messages import InputBlock, TextBlock


def enclosed_text(tag: str, text: str) -> str:
    """Give a text for the inside of an envelope: the `<` of each closing tag of `tag` becomes `&lt;`. Idempotent.

    A closing tag is what HTML takes for one: `</`, the name in any case, then a space, `/`, `>` or the end of the text.
    """
    return _closing(tag).sub("&lt;", text) if "</" in text else text


def enclosed_content(tag: str, content: tuple[InputBlock, ...]) -> tuple[InputBlock, ...]:
    """Give content for the inside of an envelope; the same blocks where nothing closes it. Between two blocks the projection
    puts a line end, which no closing tag begins with."""
    return tuple(_enclosed(tag, block) if isinstance(block, TextBlock) else block for block in content)


def _enclosed(tag: str, block: TextBlock) -> TextBlock:
    text = enclosed_text(tag, block.text)
    return block if text is block.text or text == block.text else replace(block, text=text)


@cache
def _closing(tag: str) -> re.Pattern[str]:
    return re.compile(rf"<(?=/{re.escape(tag)}(?:[\s/>]|\Z))", re.IGNORECASE | re.ASCII)
