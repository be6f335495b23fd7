"""Owns reading earlier tool results back out of a session's log, for the tool that gives what was cut out of them."""

from __future__ import annotations

from collections.abc import Callable

from refold_protocol.session.events import Replace, ToolResult
from refold_protocol.session.messages import TextBlock
from refold_server.loop.ledger import Ledger


class LoggedResults:
    """The results of one session; `readable` says how many characters of a text the model may be given at once."""

    def __init__(self, ledger: Ledger, readable: Callable[[str], int]) -> None:
        self._ledger = ledger
        self._readable = readable
        self._looked = 0
        self._are_shortened = False

    @property
    def are_shortened(self) -> bool:
        """Whether the model sees one of them shortened. O(1), but for the first time after a replace."""
        surface = self._ledger.folds.horizon.surface
        if surface.replace_generation != self._looked:
            self._looked = surface.replace_generation
            shorter = (node for node in surface.nodes if isinstance(node.surface_op, Replace))
            self._are_shortened = any(isinstance(node.data, ToolResult) for node in shorter)
        return self._are_shortened

    def text(self, seq: int) -> str | None:
        """Give the text of the result with that seq, None where there is none."""
        handle = self._ledger.handle
        if not 0 <= seq <= handle.tail:
            return None
        data = next(iter(handle.read(seq, seq))).data
        if not isinstance(data, ToolResult):
            return None
        return "\n".join(block.text for block in data.content if isinstance(block, TextBlock))

    def readable(self, text: str) -> int:
        """Give how many of a text's first characters the model may be given at once."""
        return self._readable(text)
