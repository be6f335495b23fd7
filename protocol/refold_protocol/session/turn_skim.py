"""Owns the reading of a log for the folds of a session: turns that went the ordinary way are given whole.

Most events of a turn that is over say that something began, was sent or ended, and leave nothing behind. They are passed by
without being decoded, as chunks are; the events that last come in one item (`skimmed_turns.py`). The shape of such a turn is
the grammar of `work.py` as a regular expression over the types; whatever is told in another way is given event by event, by
`skim.py`'s rules. What a line says that is passed by is not looked at here; `verify` does. Takes lines, reads nothing itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Final, TypeAlias

from refold_protocol.session.codec import decode_at
from refold_protocol.session.events import Event
from refold_protocol.session.skim import Skim
from refold_protocol.session.skimmed_turns import SkimmedTurns, whole_turns

Skimmed: TypeAlias = Event | SkimmedTurns
"""What is given: an event, or all events of some turns."""

MOST_LINES: Final = 10_000
"""Lines that are held while the end of their turn did not come; a longer turn is given event by event."""


class TurnSkim:
    """The reading of one log, from its event 0 on. Folding what it gives is folding all."""

    def __init__(self) -> None:
        self._first = 0  # the seq of the first line that is held, or of what comes next
        self._lines: list[bytes] = []  # those held: from a `turn/start` on, they may become a turn
        self._letters = ""  # one for each of them
        self._skim = Skim()

    def items(self, lines: Sequence[bytes]) -> Iterator[Skimmed]:
        """Take the next lines, and iterate over what is needed, in order; to be exhausted before the next call.

        Raises SessionCorruptionError with the seq of a line that is no event or does not stand in its place.
        """
        self._lines += lines
        letters = self._letters + "".join(map(_LETTERS.__getitem__, map(_KEY, lines)))
        done = 0
        for found in _TURNS.finditer(letters):
            yield from self._one_by_one(done, found.start())
            done = found.end()
            yield from self._turns(letters, found.start(), done)
        still_open = _OPEN_TURN.search(letters, done)
        end = len(letters) if still_open is None or len(still_open[0]) > MOST_LINES else still_open.start()
        yield from self._one_by_one(done, end)
        del self._lines[:end]
        self._letters = letters[end:]
        self._first += end

    def rest(self) -> Iterator[Event]:
        """Iterate over what was held back, once the lines are at their end: that of a turn without one, of a reply without a
        message."""
        yield from self._one_by_one(0, len(self._lines))
        yield from self._skim.rest()

    def _turns(self, letters: str, start: int, end: int) -> Iterator[Skimmed]:
        """Give what looks like whole turns: together, else each of them, else event by event."""
        passed = self._passed(letters, start, end)
        if passed is not None:
            yield passed
            return
        for found in _TURN.finditer(letters, start, end):
            passed = self._passed(letters, found.start(), found.end())
            if passed is None:
                yield from self._one_by_one(found.start(), found.end())
            else:
                yield passed

    def _passed(self, letters: str, start: int, end: int) -> SkimmedTurns | None:
        if self._skim.is_waiting:
            return None
        lines, first = self._lines, self._first
        places = [found.start() for found in _LASTING.finditer(letters, start, end)]
        steps = letters.count(_STEP, letters.rindex(_TURN_START, start, end), end)
        passed = whole_turns(tuple([decode_at(lines[at], first + at) for at in places]), steps)
        if passed is not None:
            self._skim.pass_over(end - start)
        return passed

    def _one_by_one(self, start: int, end: int) -> Iterator[Event]:
        return self._skim.events(self._lines[start:end])


class _Letters(dict[bytes, str]):
    def __missing__(self, key: bytes) -> str:
        return "?"


_FROM, _TO = len(b'{"type":"'), len(b'{"type":"turn/end","seq":')
_KEY: Final = itemgetter(slice(_FROM, _TO))
"""The part of a line, as `seal` writes it, that tells its type: longer names are cut, and told apart when they are decoded."""


def _key(name: str) -> bytes:
    return _KEY(b'{"type":"%b","seq":' % name.encode())


_LETTERS: Final = _Letters(
    {
        _key(name): letter
        for name, letter in {
            "turn/start": "T",
            "turn/end": "Z",
            "step/start": "s",
            "step/end": "z",
            "request/header": "H",
            "request/header-delta": "H",
            "request/sent": "r",
            "assistant/chunk": "c",
            "assistant/message": "A",
            "tool/call": "t",
            "tool/result": "R",
            "approval/asked": "R",
            "approval/decided": "R",
            "user/message": "U",
            "context/message": "C",
            "steering/message": "S",
            "input/accepted": "I",
            "input/settled": "I",
            "session/settings": "I",
            "session/title": "i",
            "todo/write": "i",
            "plugin/failed": "i",
        }.items()
    }
)
"""Types of events by a letter each; capital where folds need what the event says."""

_TURN_START: Final = "T"
_STEP: Final = "s"
_ONE: Final = "[iI]*+T[iICS]*+(?:U[iICS]*+)?+(?:s[iIH]*+r[iIc]*+A[iItRC]*+z[iICS]*+)++Z"
"""A turn that goes the ordinary way: `work.py`'s grammar, less what is seldom. Before it, what may stand between turns."""
_TURN: Final = re.compile(_ONE)
_TURNS: Final = re.compile(f"(?:{_ONE})++")

_OPEN_TURN: Final = re.compile("T[a-zA-SU-Y]*+$")
"""What may become a turn: its start, no end of one, and nothing that is in no such turn."""

_LASTING: Final = re.compile("[A-Z]")
