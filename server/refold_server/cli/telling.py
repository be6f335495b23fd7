"""Owns what `refold run` tells of a turn as it goes: which text goes where, and where a line has to end first.

The reply is the output; thinking, calls, failed results and a turn's bad end are told beside it. Pure: events in, pieces
out. Text for a program is exact; text for a terminal cannot steer it.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from msgspec import Struct

from refold_protocol.session.events import (
    ApprovalAsked,
    AssistantChunk,
    AssistantMessage,
    Event,
    ToolCall,
    ToolResult,
    TurnEnd,
)
from refold_protocol.session.messages import ReasoningDelta, TextDelta, text_of
from refold_server.cli.people import CALL_CHARACTERS, call_line, end_sentence, one_line, printable, subject_lines
from refold_server.cli.screen import Look

RESULT_CHARACTERS: Final = 200
"""How much of a failed result one line shows."""


class To(Enum):
    """Where a piece goes: to the output, or beside it."""

    OUT = "out"
    ASIDE = "aside"


class Piece(Struct, frozen=True, gc=False):
    """Some text and where it goes."""

    to: To
    text: str


class Teller:
    """Tells one turn. `terminal` tells whether the output is one; `look` is that of what stands beside it."""

    def __init__(self, *, terminal: bool, look: Look) -> None:
        self._terminal = terminal
        self._look = look
        self._open = {To.OUT: False, To.ASIDE: False}

    def tell(self, event: Event) -> list[Piece]:
        """Give the pieces that tell one event, in order; none for most events."""
        match event.data:
            case AssistantChunk(chunk=TextDelta(text=text)) if text:
                return [*self._ended(To.ASIDE), *self._put(To.OUT, printable(text) if self._terminal else text)]
            case AssistantChunk(chunk=ReasoningDelta(text=text)) if text:
                return [*self._ended(To.OUT), *self._put(To.ASIDE, self._look.dim(printable(text)), text)]
            case AssistantMessage():
                return [*self._ended(To.ASIDE), *self._ended(To.OUT)]
            case ToolCall(name=name, arguments=arguments):
                return self.aside(self._look.dim(f"→ {call_line(name, arguments)}"))
            case ToolResult(is_error=True, content=content):
                return self.aside(self._look.red(f"✗ {one_line(text_of(content), RESULT_CHARACTERS)}"))
            case TurnEnd(reason=reason) if reason.kind != "completed":
                return self.aside(self._look.red(f"turn {end_sentence(reason)}"))
            case _:
                return []

    def line(self, text: str) -> list[Piece]:
        """Put a line of its own into the output."""
        return [*self._ended(To.ASIDE), *self._ended(To.OUT), *self._put(To.OUT, text + "\n")]

    def aside(self, text: str) -> list[Piece]:
        """Put a line of its own beside the output."""
        return [*self._ended(To.OUT), *self._ended(To.ASIDE), *self._put(To.ASIDE, text + "\n")]

    def question(self, asked: ApprovalAsked) -> list[Piece]:
        """Give what a person is asked: the tool, and the subject whole, since that is what they allow."""
        lines = [self._look.bold(f"? {one_line(asked.tool, CALL_CHARACTERS)} asks to run")]
        lines += subject_lines(asked.subject, self._look)
        return self.aside("\n".join(lines))

    def prompt(self, text: str) -> list[Piece]:
        """Begin a line beside the output that a person ends by their own line break."""
        return [*self._ended(To.OUT), *self._ended(To.ASIDE), *self._put(To.ASIDE, self._look.bold(text))]

    def answered(self) -> None:
        """The person has ended the line."""
        self._open[To.ASIDE] = False

    def _put(self, to: To, text: str, shown: str | None = None) -> list[Piece]:
        self._open[to] = not (text if shown is None else shown).endswith("\n")
        return [Piece(to, text)]

    def _ended(self, to: To) -> list[Piece]:
        return self._put(to, "\n") if self._open[to] else []
