"""Owns the reading of a log for its folds: every event but the chunks that no fold needs any more.

Nine of ten events are chunks, and once their step has its reply, or is over, nothing is derived from them: the reply says
the same. They are passed by without being decoded, so what such a line says is not looked at here; `verify` does. A chunk
where no step waits for its reply is given all the same, so that the grammar refuses it. Takes lines, reads nothing itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from refold_protocol.session.codec import CHUNK, decode_at
from refold_protocol.session.events import AssistantMessage, Event, StepEnd, StepStart

Lines: TypeAlias = Callable[[int, int], Sequence[bytes]]
"""Gives the lines from a first to a last seq, whole."""


class Skim:
    """The reading of one log, from its event 0 on. Folding what it gives is folding all."""

    def __init__(self) -> None:
        self._next = 0
        self._waiting = False  # for a reply
        self._held: list[bytes] = []  # what stands in the log from the first chunk of that reply on
        self._mixed = False  # whether that is not chunks alone

    def events(self, lines: Sequence[bytes]) -> Iterator[Event]:
        """Take the next lines, and iterate over the events that are needed, in order; to be exhausted before the next call.

        Raises SessionCorruptionError with the seq of a line that is no event or does not stand in its place.
        """
        held = self._held
        for seq, line in enumerate(lines, self._next):
            if self._waiting and line.startswith(CHUNK):
                held.append(line)
                continue
            event = decode_at(line, seq)
            data = event.data
            if isinstance(data, StepStart):
                self._waiting = True
            elif isinstance(data, (AssistantMessage, StepEnd)):
                self._waiting = False
                if self._mixed:
                    yield from _but_chunks(held, seq - len(held))
                    self._mixed = False
                held.clear()
            if held:
                held.append(line)
                self._mixed = True
            else:
                yield event
        self._next += len(lines)

    @property
    def is_waiting(self) -> bool:
        """Whether a step is open that has no reply."""
        return self._waiting

    def pass_over(self, count: int) -> None:
        """Let so many lines be taken by somebody else, where nothing is held back."""
        self._next += count

    def rest(self, read: Lines) -> Iterator[Event]:
        """Iterate over what was held back, once the lines are at their end: that of a reply without a message. Bare lines of it
        are read."""
        first = self._next - len(self._held)
        held = list(read(first, self._next - 1)) if CHUNK in self._held else self._held
        for seq, line in enumerate(held, first):
            yield decode_at(line, seq)


def _but_chunks(lines: Sequence[bytes], first: int) -> Iterator[Event]:
    for seq, line in enumerate(lines, first):
        if not line.startswith(CHUNK):
            yield decode_at(line, seq)
