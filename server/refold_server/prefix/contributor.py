"""Owns the form of a built-in contributor: a name and a text, put before what the contributors behind it say.

The wire shows contributors in the order of their registration, because each puts its message before those of the rest.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from refold_protocol.json_text import repair_surrogates
from refold_protocol.session.enclosing import enclosed_text
from refold_protocol.session.messages import Message, text_content
from refold_server.plugins.payloads import Composing, NextPrefix
from refold_server.plugins.seam import PrefixHandler
from refold_server.tools.tool_failure import Interrupted

Write: TypeAlias = Callable[[str], Awaitable[str | None]]
"""Gives what a contributor says of the session's folder, an absolute path; None for nothing."""


def contributor(name: str, write: Write) -> PrefixHandler:
    """Give the handler of `agent/session-prefix` that says what `write` gives, in the envelope of context, as a user."""

    async def contribute(composing: Composing, following: NextPrefix) -> Sequence[Message]:
        text = await write(composing.place.cwd)
        rest = await following()
        if text is None:
            return rest
        enclosed = f'<context source="refold:{name}">\n{enclosed_text("context", text)}\n</context>'
        return [Message("user", text_content(enclosed)), *rest]

    contribute.__name__ = name
    return contribute


def contributor_name(handler: object) -> str:
    """Give what a contributor is called: the name of its function, or of its class."""
    try:
        return repair_surrogates(str(getattr(handler, "__name__", type(handler).__name__)))
    except Interrupted:
        raise
    except BaseException:  # noqa: BLE001 - a plugin may be anybody's code, and its name is only told
        return type(handler).__name__
