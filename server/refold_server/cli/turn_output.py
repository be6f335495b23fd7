"""Output of a turn as it runs: which text goes to which stream, and where a line has to end first.

The reply is the output; thinking, calls, failed results and a turn's bad end go to standard error. Text for a program is
exact; text for a terminal cannot steer it. Events wait in the log, not in memory: a batch is written before the next one is
taken. Knows no session.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Final

import anyio
from msgspec import Struct

from refold_protocol.ids import CallId, SessionId
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
from refold_server.cli.terminal import CLEAR_LINE, AsyncOutputStream, Style, style_for

RESULT_CHARACTERS: Final = 200
"""How much of a failed result one line shows."""


LIFE_CHARACTERS: Final = 60
"""How much of what is waited for is shown, so that the line fits a terminal."""

_ASKS: Final = "waiting for the model"

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

    def __init__(self, *, terminal: bool, style: Style, quiet: bool = False) -> None:
        self._quiet = quiet
        self._answer = ""
        self._terminal = terminal
        self._style = style
        self._open = {Target.OUT: False, Target.NOTES: False}

    def event(self, event: Event) -> list[OutputPiece]:
        """Give the pieces for one event, in order; none for most events."""
        return self._quiet_event(event) if self._quiet else self._told_event(event)

    @property
    def between_lines(self) -> bool:
        """Whether neither stream has a line that goes on."""
        return not any(self._open.values())

    def _quiet_event(self, event: Event) -> list[OutputPiece]:
        """Give the answer at the turn's end, without what was said before calls, and a bad end."""
        match event.data:
            case AssistantChunk(chunk=TextDelta(text=text)):
                self._answer += text
            case ToolCall():
                self._answer = ""
            case TurnEnd(reason=reason):
                answer = printable(self._answer) if self._terminal else self._answer
                said = [*self._put(Target.OUT, answer), *self._ended(Target.OUT)] if answer else []
                return said if reason.kind == "completed" else [*said, *self._told_event(event)]
            case _:
                pass
        return []

    def _told_event(self, event: Event) -> list[OutputPiece]:
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


class SignOfLife:
    """What a turn waits for, in words, and since when."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._running: dict[CallId, str] = {}
        self._asks = _ASKS
        self._over = False
        self._since = clock()

    def event(self, event: Event) -> None:
        """Take notice of an event."""
        self._since = self._clock()
        match event.data:
            case ToolCall(call_id=call, name=name):
                self._running[call] = one_line(name, CALL_CHARACTERS)
            case ToolResult(call_id=call):
                self._running.pop(call, None)
            case LlmRetry(attempt=failed):
                self._asks = f"{_ASKS}, attempt {failed + 1}"
            case CompactStart():
                self._asks = "the older part of the history is being summed up"
            case CompactEnd() | AssistantMessage():
                self._asks = _ASKS
            case TurnEnd():
                self.over()
            case _:
                pass

    def over(self) -> None:
        """Nothing is waited for any more."""
        self._over = True

    def line(self) -> str:
        """Give the line, empty where nothing is waited for."""
        if self._over:
            return ""
        what = f"running {', '.join(self._running.values())}" if self._running else self._asks
        return f"… {what[:LIFE_CHARACTERS]} ({self._clock() - self._since:.0f} s)"


class TurnPrinter:
    """Prints a turn to `out` and `err`: for a person, or with `as_json` each event's exact line. Every method raises
    OutputLostError when `out` takes nothing more."""

    def __init__(self, out: AsyncOutputStream, err: AsyncOutputStream, *, as_json: bool = False, quiet: bool = False) -> None:
        self._quiet = quiet
        self._streams = {Target.OUT: out, Target.NOTES: err}
        self._json = as_json
        self._formatter = TurnFormatter(terminal=out.terminal, style=style_for(terminal=err.terminal), quiet=quiet)
        self._life = SignOfLife()
        self._shown = False
        self._lock = anyio.Lock()

    async def begin(self, session: SessionId) -> None:
        """Say which session it is, to a program."""
        if self._json:
            await self._streams[Target.OUT].write(json.dumps({"session": session}).encode() + b"\n")

    async def show(self, events: Iterable[Event]) -> None:
        """Show some events."""
        if self._json:
            await self._streams[Target.OUT].write(b"".join(event.line + b"\n" for event in events))
        else:
            pieces: list[OutputPiece] = []
            for event in events:
                pieces += self._formatter.event(event)
                self._life.event(event)
            await self._write(pieces)

    async def show_life(self) -> None:
        """Say on a terminal, each second, what is waited for, in one line that is erased before the next text. Ends when it is
        cancelled."""
        err = self._streams[Target.NOTES]
        if self._json or self._quiet or not err.terminal:
            return
        while True:
            await anyio.sleep(1)
            async with self._lock:
                if self._formatter.between_lines and (line := self._life.line()):
                    self._shown = True
                    await err.write(f"{CLEAR_LINE}{line}".encode(err.encoding, "backslashreplace"))

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
        self._life.over()
        if not self._json and not self._quiet:
            await self._write(self._formatter.line(f"session {session}"))

    async def note(self, text: str) -> None:
        """Say something on standard error."""
        await self._write(self._formatter.note(text))

    async def _write(self, pieces: Iterable[OutputPiece]) -> None:
        """Write pieces in order, neighbours for one stream together, in place of the sign of life."""
        async with self._lock:
            await self._write_pieces(pieces)

    async def _write_pieces(self, pieces: Iterable[OutputPiece]) -> None:
        if self._shown:
            self._shown = False
            await self._streams[Target.NOTES].write(CLEAR_LINE.encode())
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
