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

from refold_protocol.ids import InputId
from refold_protocol.session.codec import decode_all, decode_at
from refold_protocol.session.events import (
    ContextMessage,
    Event,
    ForeignData,
    SteeringMessage,
    TurnEnd,
    UserMessage,
)
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
        """Give such turns whole; None where something in them is told apart by more than its type: a replace, a foreign type
        whose name begins like one of ours, numbers of turns that do not agree."""
        if self._skim.is_waiting:
            return None
        last = self._event(end - 1)
        turn = last.data.turn if isinstance(last.data, TurnEnd) else 0
        ends = tuple([self._first + found.start() for found in _END.finditer(letters, start, end)])
        starts = [found.start() for found in _START.finditer(letters, start, end)]
        first = turn - len(ends) + 1
        started = _started([self._lines[at] for at in starts], first)
        if started is None:
            return None
        events, kinds = self._lasting(letters, start, end)
        nodes = _of(events, kinds, _NODES)
        if any(type(event.data) is ForeignData for event in events) or any(event.surface_op != "append" for event in nodes):
            return None
        inputs, rules, headers = (_of(events, kinds, those) for those in (_INPUTS, _RULES, _HEADERS))
        steps, prompted = letters.count(b"s", starts[-1], end), letters.find(b"U", starts[-1], end) >= 0
        self._skim.pass_over(end - start)
        opening = self._first + starts[0]
        return SkimmedTurns(first, turn, steps, prompted, opening, started, ends, last, inputs, nodes, headers, rules)

    def _lasting(self, letters: bytes, start: int, end: int) -> tuple[list[Event], bytes]:
        """Give the events of a stretch that last, and the letter of each. What was accepted without a key, and joined the
        history in that stretch, does not."""
        places = [found.start() for found in _LASTING.finditer(letters, start, end)]
        events = decode_all([self._lines[at] for at in places], [self._first + at for at in places])
        kinds = letters[start:end].translate(None, _PASSED_BY)
        joined: dict[InputId | None, int] = {
            event.data.input: at
            for at, event in zip(places, events, strict=True)
            if isinstance(event.data, (UserMessage, ContextMessage, SteeringMessage)) and event.data.input is not None
        }
        accepted = [found.start() for found in _ACCEPTED.finditer(letters, start, end)]
        waiting = [at for at in accepted if at >= joined.get(_input_of(self._lines[at]), -1)]
        if not waiting:
            return events, kinds
        more = [(at, self._event(at), b"I") for at in waiting]
        them = [(at, event, kinds[place : place + 1]) for place, (at, event) in enumerate(zip(places, events, strict=True))]
        both = sorted([*them, *more], key=itemgetter(0))
        return [event for _, event, _ in both], b"".join([kind for *_, kind in both])

    def _event(self, at: int) -> Event:
        return decode_at(self._lines[at], self._first + at)

    def _one_by_one(self, start: int, end: int) -> Iterator[Event]:
        return self._skim.events(self._lines[start:end])


def _started(lines: Sequence[bytes], first: int) -> dict[InputId, int] | None:
    """Read what started these turns, the first of which has that number, out of their `turn/start` as `seal` writes it: the
    turn of each input. None where a line says another number, or says it in another way."""
    started: dict[InputId, int] = {}
    for turn, line in enumerate(lines, first):
        if b'"data":{"turn":%d,"trigger":{' % turn not in line:
            return None
        place = line.rfind(b'"input":"')
        if place >= 0:
            given = line[place + 9 : -4]
            if not (line.endswith(b'"}}}') and _PLAIN.fullmatch(given)):
                return None
            started[InputId(given.decode())] = turn
    return started


def _input_of(line: bytes) -> InputId | None:
    """Read the id out of an `input/accepted` without a key, as `seal` writes it; None for any other."""
    place = line.find(b'"data":{"input":"')
    if place < 0 or b'"key":' in line:
        return None
    given = line[place + 17 : line.find(b'"', place + 17)]
    return InputId(given.decode()) if _PLAIN.fullmatch(given) else None


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
            "turn/start": b"b",
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
            "input/accepted": b"a",
            "input/settled": b"I",
            "session/settings": b"G",
            "session/title": b"i",
            "todo/write": b"i",
            "plugin/failed": b"i",
        }.items()
    }
)
"""Types of events by a letter each; capital where folds need all that the event says."""

_PASSED_BY: Final = b"abcdefghijklmnopqrstuvwxyz"
_LASTING: Final = re.compile(b"[A-Z]")
_START: Final = re.compile(b"b")
_ACCEPTED: Final = re.compile(b"a")
_END: Final = re.compile(b"z")
_PLAIN: Final = re.compile(rb"[\w-]++", re.ASCII)

_ONE: Final = b"[aiIG]*+b[aiIGCS]*+(?:U[aiIGCS]*+)?+(?:s[aiIGH]*+r[aiIGc]*+A[aiIGtRPC]*+e[aiIGCS]*+)++z"
"""A turn that goes the ordinary way: `work.py`'s grammar, less what is seldom. Before it, what may stand between turns."""
_TURN: Final = re.compile(_ONE)
_TURNS: Final = re.compile(b"(?:%b)++" % _ONE)

_OPEN_TURN: Final = re.compile(b"b[A-Zac-y]*+$")
"""What may become a turn: its start, no end of one, and nothing that is in no such turn."""


def _marking(letters: bytes) -> bytes:
    """Give the table that makes 1 of these letters, and 0 of others."""
    return bytes(int(code in letters) for code in range(256))


_NODES: Final = _marking(b"UCSAR")
_INPUTS: Final = _marking(b"IUCS")
_HEADERS: Final = _marking(b"H")
_RULES: Final = _marking(b"GP")
