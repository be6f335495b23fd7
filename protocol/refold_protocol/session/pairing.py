"""Owns the pairing check: in a request, every call has exactly one result, and every result its call just before.

Pairing goes by position within the step: ids may repeat across turns. Providers refuse a history that breaks this, for
ever; so it is checked wherever a request is vouched for.
"""

from __future__ import annotations

from refold_protocol.session.messages import Message, ToolCallBlock, ToolResultBlock
from refold_protocol.session.request import Request
from refold_protocol.session.tape import Tape


class PairingCheck:
    """Checks requests of one log; of a request that extends the one before, only what is new."""

    def __init__(self) -> None:
        self._prefix: tuple[Message, ...] | None = None
        self._history: Tape[Message] = Tape()
        self._faults: list[str] = []
        self._waiting: list[tuple[str, str]] = []
        self._place = 0

    def faults(self, request: Request) -> list[str]:
        """Give a sentence for each call without a result and each result without a call; nothing when all pair."""
        if request.header.message_prefix != self._prefix or not request.history.extends(self._history):
            self._faults, self._waiting, self._place = [], [], 0
            self._prefix, self._history = request.header.message_prefix, Tape()
            for message in self._prefix or ():
                self._look(message)
        for message in request.history.since(len(self._history)):
            self._look(message)
        self._history = request.history
        return [*self._faults, *(f"call {call} ({name}) has no result" for call, name in self._waiting)]

    def _look(self, message: Message) -> None:
        results = [block for block in message.content if isinstance(block, ToolResultBlock)]
        if self._waiting and not results:
            before = f"before message {self._place}"
            self._faults.extend(f"call {call} ({name}) has no result {before}" for call, name in self._waiting)
            self._waiting = []
        for result in results:
            call = next((call for call in self._waiting if call[0] == result.tool_call_id), None)
            if call is None:
                asked = "which no call before it asks for"
                self._faults.append(f"message {self._place} answers {result.tool_call_id}, {asked}")
            else:
                self._waiting.remove(call)
        self._waiting.extend((block.id, block.name) for block in message.content if isinstance(block, ToolCallBlock))
        self._place += 1


def pairing_faults(request: Request) -> list[str]:
    """Check one request from nothing."""
    return PairingCheck().faults(request)
