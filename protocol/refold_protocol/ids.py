"""Types of identities. Makes none of them: ids come in as arguments.

Text identities are NewTypes, so that a session id cannot be passed where an input id is meant. Sequence numbers, turns,
steps, attempts and instances are plain integers: they are counted with, and a NewType would be lost at the first sum.
"""

from __future__ import annotations

from typing import NewType

SessionId = NewType("SessionId", str)
"""A UUIDv7 in lower case, or any text of at most 512 UTF-8 bytes that an import brought along."""

InputId = NewType("InputId", str)
"""A UUIDv7 in lower case: one accepted prompt, steering or injection."""

ApprovalId = NewType("ApprovalId", str)
"""A UUIDv7 in lower case: one question whether a tool may run."""

WriterId = NewType("WriterId", str)
"""`<UUIDv7>.<tail at open>`: drawn at each open for write, so that a client notices when another process took over."""

CallId = NewType("CallId", str)
"""A tool call's id: the provider's, or `call_<turn>_<step>_<n>` when the provider sent none or a used one."""

MAX_SESSION_ID_BYTES = 512
"""Longest session id that is accepted, in UTF-8 bytes. Store keys do not hold ids, so this is politeness, not a format."""


def writer_tail(writer: WriterId) -> int:
    """Give the seq of the last event at the moment this writer opened the log (−1 for an empty log).

    Raises ValueError for a text that is not a writer id.
    """
    _, dot, tail = writer.rpartition(".")
    if not dot:
        raise ValueError(f"not a writer id: {writer!r}")
    return int(tail)
