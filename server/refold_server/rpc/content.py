"""Owns the one rule about content from outside that types cannot say: some of its text is not blank."""

from __future__ import annotations

from collections.abc import Iterable

from refold_protocol.rpc.errors import WireError, bad_param
from refold_protocol.rpc.params import TextInput


def refuse_blank(method: str, content: Iterable[TextInput]) -> None:
    """Raise WireError (−32602) for content without visible text: strict providers refuse such messages for ever."""
    if not any(block.text.strip() for block in content):
        raise WireError(bad_param(method, "$.content", "some of the text must not be blank"))
