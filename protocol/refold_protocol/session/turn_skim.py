"""Owns the reading of a log for the folds of a session: turns that went the ordinary way are given whole.

Most events of a turn that is over say that something began, was sent or ended, and leave nothing behind. They are passed by
without being decoded, as chunks are; the events that last come in one item (`skimmed_turns.py`). The shape of such a turn is
the grammar of `work.py` as a regular expression over the types; whatever is told in another way is given event by event, by
`skim.py`'s rules. What a line says that is passed by is not looked at here; `verify` does. Takes lines, reads nothing itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import compress
from operator import itemgetter
from typing import Final, TypeAlias

from refold_protocol.session.codec import decode_all, decode_at
from refold_protocol.session.events import Event, ForeignData, TurnEnd, TurnStart
from refold_protocol.session.skim import Lines, Skim
from refold_protocol.session.skimmed_turns import SkimmedTurns

Skimmed: TypeAlias = Event | SkimmedTurns
"""What is given: an event, or all events of some turns."""

MOST_LINES: Final = 10_000
"""Lines that are held while the end of their turn did not come; a longer turn is given event by event."""


class TurnSkim:
    """The reading of one log, from its event 0 on. Folding what it gives is folding all."""

    def __init__(self) -> None:
        self._first = 0  # the seq of the first line that is held, or of what comes next
        self._lines: list[bytes] = []  # those held: from a `turn/start` on, they may become a turn
        self._letters = b""  # one for each of them
        self._skim = Skim()

    def items(self, lines: Sequence[bytes]) -> Iterator[Skimmed]:
        """Take the next lines, and iterate over what is needed, in order; to be exhausted before the next call.

        Raises SessionCorruptionError with the seq of a line that is no event or does not stand in its place.
        """
        self._lines += lines
        letters = self._letters + b"".join(map(_LETTERS.__getitem__, map(_KEY, lines)))
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

    def rest(self, read: Lines) -> Iterator[Event]:
        """Iterate over what was held back, once the lines are at their end: that of a turn without one, of a reply without a
        message, whose bare lines are read."""
        yield from self._one_by_one(0, len(self._lines))
        yield from self._skim.rest(read)

    def _turns(self, letters: bytes, start: int, end: int) -> Iterator[Skimmed]:
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

    def _passed(self, letters: bytes, start: int, end: int) -> SkimmedTurns | None:
        if self._skim.is_waiting:
            return None
        first = self._first
        ends = tuple([first + found.start() for found in _END.finditer(letters, start, end)])
        places = [found.start() for found in _LASTING.finditer(letters, start, end)]
        lines = [self._lines[place] for place in places]
        events = decode_all(lines, [first + place for place in places])
        kinds = letters[start:end].translate(None, _PASSED_BY)
        steps = letters.count(_STEP, letters.rindex(_START, start, end), end)
        passed = _sorted(events, kinds, ends, decode_at(self._lines[end - 1], first + end - 1), steps)
        if passed is not None:
            self._skim.pass_over(end - start)
        return passed

    def _one_by_one(self, start: int, end: int) -> Iterator[Event]:
        return self._skim.events(self._lines[start:end])


def _sorted(events: Sequence[Event], kinds: bytes, ends: tuple[int, ...], end: Event, steps: int) -> SkimmedTurns | None:
    """Sort what lasts of some turns by what it is for; None where something in them is told apart by more than its type: a
    replace, a foreign type whose name begins like one of ours, numbers of turns that do not agree."""
    nodes, starts = _of(events, kinds, _NODES), _of(events, kinds, _STARTS)
    if any(type(event.data) is ForeignData for event in events) or any(event.surface_op != "append" for event in nodes):
        return None
    numbers = [start.data.turn for start in starts if isinstance(start.data, TurnStart)]
    turn = numbers[-1]
    if numbers != list(range(turn - len(ends) + 1, turn + 1)) or not isinstance(end.data, TurnEnd) or end.data.turn != turn:
        return None
    inputs, rules, headers = (_of(events, kinds, those) for those in (_INPUTS, _RULES, _HEADERS))
    prompted = kinds.rfind(b"U") > kinds.rfind(_START)
    return SkimmedTurns(turn, steps, prompted, starts, ends, end, inputs, nodes, headers, rules)


def _of(events: Sequence[Event], kinds: bytes, those: bytes) -> tuple[Event, ...]:
    return tuple(compress(events, kinds.translate(those)))


class _Letters(dict[bytes, bytes]):
    def __missing__(self, key: bytes) -> bytes:
        return b"?"


_FROM, _TO = len(b'{"type":"'), len(b'{"type":"turn/end","seq":')
_KEY: Final = itemgetter(slice(_FROM, _TO))
"""The part of a line, as `seal` writes it, that tells its type: longer names are cut, and told apart when they are decoded."""


def _key(name: str) -> bytes:
    return _KEY(b'{"type":"%b","seq":' % name.encode())


_LETTERS: Final = _Letters(
    {
        _key(name): letter
        for name, letter in {
            "turn/start": b"T",
            "turn/end": b"z",
            "step/start": b"s",
            "step/end": b"e",
            "request/header": b"H",
            "request/header-delta": b"H",
            "request/sent": b"r",
            "assistant/chunk": b"c",
            "assistant/message": b"A",
            "tool/call": b"t",
            "tool/result": b"R",
            "approval/asked": b"P",
            "approval/decided": b"P",
            "user/message": b"U",
            "context/message": b"C",
            "steering/message": b"S",
            "input/accepted": b"I",
            "input/settled": b"I",
            "session/settings": b"G",
            "session/title": b"i",
            "todo/write": b"i",
            "plugin/failed": b"i",
        }.items()
    }
)
"""Types of events by a letter each; capital where folds need what the event says."""

_START: Final = b"T"
_STEP: Final = b"s"
_PASSED_BY: Final = b"abcdefghijklmnopqrstuvwxyz"
_LASTING: Final = re.compile(b"[A-Z]")
_END: Final = re.compile(b"z")

_ONE: Final = b"[iIG]*+T[iIGCS]*+(?:U[iIGCS]*+)?+(?:s[iIGH]*+r[iIGc]*+A[iIGtRPC]*+e[iIGCS]*+)++z"
"""A turn that goes the ordinary way: `work.py`'s grammar, less what is seldom. Before it, what may stand between turns."""
_TURN: Final = re.compile(_ONE)
_TURNS: Final = re.compile(b"(?:%b)++" % _ONE)

_OPEN_TURN: Final = re.compile(b"T[A-SU-Za-y]*+$")
"""What may become a turn: its start, no end of one, and nothing that is in no such turn."""


def _marking(letters: bytes) -> bytes:
    """Give the table that makes 1 of these letters, and 0 of others."""
    return bytes(int(code in letters) for code in range(256))


_NODES: Final = _marking(b"UCSAR")
_STARTS: Final = _marking(b"T")
_INPUTS: Final = _marking(b"IUCS")
_HEADERS: Final = _marking(b"H")
_RULES: Final = _marking(b"GP")
