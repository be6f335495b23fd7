"""Output of a turn as it runs: which text goes to which stream, and where a line has to end first.

The reply is the output; thinking, calls, failed results and a turn's bad end go to standard error. Text for a program is
exact; text for a terminal cannot steer it. Events wait in the log, not in memory: a batch is written before the next one is
taken. Knows no session.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from enum import Enum
from typing import Final

from msgspec import Struct

from refold_protocol.ids import SessionId
from refold_protocol.session.events import (
    ApprovalAsked,
    AssistantChunk,
    AssistantMessage,
    CompactEnd,
    CompactStart,
    ContextMessage,
    Event,
    LlmRetry,
    ToolCall,
    ToolResult,
    TurnEnd,
)
from refold_protocol.session.messages import ReasoningDelta, Source, TextDelta, text_of
from refold_server.cli.formatting import CALL_CHARACTERS, call_line, end_sentence, one_line, printable, subject_lines
from refold_server.cli.terminal import AsyncOutputStream, Style, style_for

RESULT_CHARACTERS: Final = 200
"""How much of a failed result one line shows."""


_WRITTEN: Final = "(the model wrote its calls as text; they are taken as calls)"


class Target(Enum):
    """Where a piece goes: to the output, or to standard error."""

    OUT = "out"
    NOTES = "notes"


class OutputPiece(Struct, frozen=True, gc=False):
    """Some text and where it goes."""

    target: Target
    text: str


class TurnFormatter:
    """Puts one turn into words. `terminal`: the output is one; `style` is that of standard error."""

    def __init__(self, *, terminal: bool, style: Style) -> None:
        self._terminal = terminal
        self._style = style
        self._open = {Target.OUT: False, Target.NOTES: False}

    def event(self, event: Event) -> list[OutputPiece]:
        """Give the pieces for one event, in order; none for most events."""
        match event.data:
            case AssistantChunk(chunk=TextDelta(text=text)) if text:
                return [*self._ended(Target.NOTES), *self._put(Target.OUT, printable(text) if self._terminal else text)]
            case AssistantChunk(chunk=ReasoningDelta(text=text)) if text:
                return [*self._ended(Target.OUT), *self._put(Target.NOTES, self._style.dim(printable(text)), text)]
            case AssistantMessage(written=written):
                ended = [*self._ended(Target.NOTES), *self._ended(Target.OUT)]
                return [*ended, *(self.note(self._style.dim(_WRITTEN)) if written else ())]
            case LlmRetry(attempt=failed, code=code, delay_ms=wait):
                return self.note(self._style.dim(f"{code}; attempt {failed + 1} in {wait / 1000:.1f} s"))
            case ToolCall(name=name, arguments=arguments):
                return self.note(self._style.dim(f"→ {call_line(name, arguments)}"))
            case ToolResult(is_error=True, content=content):
                return self.note(self._style.red(f"✗ {one_line(text_of(content), RESULT_CHARACTERS)}"))
            case ContextMessage(source=Source(kind="loop", name="cut off"), content=content):
                return self.note(self._style.red(printable(text_of(content))))
            case CompactStart():
                return self.note(self._style.dim("(the older part of the history is being summed up)"))
            case CompactEnd(error=error):
                if error is None:
                    return self.note(self._style.dim("(it was summed up)"))
                return self.note(self._style.red(f"(it was not summed up: {one_line(error.message, RESULT_CHARACTERS)})"))
            case TurnEnd(reason=reason) if reason.kind != "completed":
                return self.note(self._style.red(f"turn {end_sentence(reason)}"))
            case _:
                return []

    def line(self, text: str) -> list[OutputPiece]:
        """Put a line of its own into the output."""
        return [*self._ended(Target.NOTES), *self._ended(Target.OUT), *self._put(Target.OUT, text + "\n")]

    def note(self, text: str) -> list[OutputPiece]:
        """Put a line of its own on standard error."""
        return [*self._ended(Target.OUT), *self._ended(Target.NOTES), *self._put(Target.NOTES, text + "\n")]

    def question(self, asked: ApprovalAsked) -> list[OutputPiece]:
        """Give what a person is asked: the tool, and the subject whole, since that is what they allow."""
        lines = [self._style.bold(f"? {one_line(asked.tool, CALL_CHARACTERS)} asks to run")]
        lines += subject_lines(asked.subject, self._style)
        return self.note("\n".join(lines))

    def prompt(self, text: str, *, goes_on: bool = False) -> list[OutputPiece]:
        """Begin a line on standard error that a person ends by their own line break, or go on with it."""
        before = [] if goes_on else [*self._ended(Target.OUT), *self._ended(Target.NOTES)]
        return [*before, *self._put(Target.NOTES, self._style.bold(text))]

    def answered(self) -> None:
        """The person has ended the line."""
        self._open[Target.NOTES] = False

    def _put(self, target: Target, text: str, shown: str | None = None) -> list[OutputPiece]:
        self._open[target] = not (text if shown is None else shown).endswith("\n")
        return [OutputPiece(target, text)]

    def _ended(self, target: Target) -> list[OutputPiece]:
        return self._put(target, "\n") if self._open[target] else []


class TurnPrinter:
    """Prints a turn to `out` and `err`: for a person, or with `as_json` each event's exact line. Every method raises
    OutputLostError when `out` takes nothing more."""

    def __init__(self, out: AsyncOutputStream, err: AsyncOutputStream, *, as_json: bool = False) -> None:
        self._streams = {Target.OUT: out, Target.NOTES: err}
        self._json = as_json
        self._formatter = TurnFormatter(terminal=out.terminal, style=style_for(terminal=err.terminal))

    async def begin(self, session: SessionId) -> None:
        """Say which session it is, to a program."""
        if self._json:
            await self._streams[Target.OUT].write(json.dumps({"session": session}).encode() + b"\n")

    async def show(self, events: Iterable[Event]) -> None:
        """Show some events."""
        if self._json:
            await self._streams[Target.OUT].write(b"".join(event.line + b"\n" for event in events))
        else:
            await self._write([piece for event in events for piece in self._formatter.event(event)])

    @property
    def is_seen(self) -> bool:
        """Whether a person sees standard error at once."""
        return self._streams[Target.NOTES].terminal

    async def show_question(self, asked: ApprovalAsked) -> None:
        """Show what a person is asked: which tool, and exactly what it would do."""
        await self._write(self._formatter.question(asked))

    async def prompt(self, text: str, *, goes_on: bool = False) -> None:
        """Begin a line on standard error that a person ends, or go on with it."""
        await self._write(self._formatter.prompt(text, goes_on=goes_on))

    def answered(self) -> None:
        """The person has ended the line."""
        self._formatter.answered()

    async def end(self, session: SessionId) -> None:
        """Say which session it was, to a person: the last line."""
        if not self._json:
            await self._write(self._formatter.line(f"session {session}"))

    async def note(self, text: str) -> None:
        """Say something on standard error."""
        await self._write(self._formatter.note(text))

    async def _write(self, pieces: Iterable[OutputPiece]) -> None:
        """Write pieces in order, neighbours for one stream together."""
        waiting: list[str] = []
        target = Target.OUT
        for piece in pieces:
            if piece.target is not target:
                await self._flush(target, waiting)
                target, waiting = piece.target, []
            waiting.append(piece.text)
        await self._flush(target, waiting)

    async def _flush(self, target: Target, waiting: list[str]) -> None:
        stream = self._streams[target]
        await stream.write("".join(waiting).encode(stream.encoding, "backslashreplace"))
