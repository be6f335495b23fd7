"""Owns the pairing check: in a request, every call has exactly one result, and every result its call just before.

Pairing goes by position within the step: ids may repeat across turns. Providers refuse a history that breaks this, for
ever; so it is checked wherever a request is vouched for.
"""

from __future__ import annotations

from collections.abc import Iterable

from refold_protocol.session.messages import Message, ToolCallBlock, ToolResultBlock


def pairing_faults(messages: Iterable[Message]) -> list[str]:
    """Give a sentence for each call without a result and each result without a call, in order; nothing when all pair."""
    faults: list[str] = []
    waiting: dict[str, str] = {}
    for place, message in enumerate(messages):
        results = [block for block in message.content if isinstance(block, ToolResultBlock)]
        if waiting and not results:
            faults.extend(f"call {call} ({name}) has no result before message {place}" for call, name in waiting.items())
            waiting = {}
        for result in results:
            if waiting.pop(result.tool_call_id, None) is None:
                faults.append(f"message {place} answers {result.tool_call_id}, which no call before it asks for")
        waiting.update((block.id, block.name) for block in message.content if isinstance(block, ToolCallBlock))
    faults.extend(f"call {call} ({name}) has no result" for call, name in waiting.items())
    return faults
