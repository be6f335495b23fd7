"""Owns the repair of halves of surrogate pairs before a chunk is yielded: joined with their other half, else U+FFFD.

A half is a character of its own only after the JSON of its event was decoded by a lenient scanner; its other half may
come with the next delta, so a high half at the end is held back. Halves that stand as escapes inside the JSON text of a
call's arguments are another matter: the assembler repairs those, on the whole text. Knows nothing of events or blocks.
"""

from __future__ import annotations

from typing import Final

from refold_protocol.json_text import repair_surrogates

REPLACEMENT: Final = "\ufffd"
"""What stands for a half whose other half never came."""


class TextRepair:
    """Repairs one text that comes in pieces. `pending` is a high half that waits for its low half, else empty."""

    __slots__ = ("pending",)

    def __init__(self) -> None:
        self.pending = ""

    def feed(self, text: str) -> str:
        """Give as much valid text as is known by now; an empty string where nothing is."""
        text = self.pending + text
        self.pending = text[-1] if text and "\ud800" <= text[-1] <= "\udbff" else ""
        return repair_surrogates(text[:-1] if self.pending else text)

    def close(self) -> str:
        """Give what stands for a half that is still pending; an empty string where none is."""
        left, self.pending = self.pending, ""
        return REPLACEMENT if left else ""
