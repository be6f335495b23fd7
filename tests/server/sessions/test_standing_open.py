"""What a follower finds open at the end of a log, looking back as little as it can, is what folding all of it finds."""

from __future__ import annotations

from typing import cast

from hypothesis import given

from refold_protocol.session.closers import open_at_end
from refold_protocol.session.grammar import NO_TURN, turn_step
from refold_server.sessions.session_views import stands_open
from refold_storage.interface import Handle
from tests.support.log_strategies import Log, logs


class Lines:
    """As much of a handle as is looked at; remembers how far back that was."""

    def __init__(self, lines: list[bytes]) -> None:
        self.tail = len(lines) - 1
        self.first = len(lines)
        self._lines = lines

    def lines(self, first: int, last: int) -> list[bytes]:
        self.first = min(self.first, first)
        return self._lines[first : last + 1]


def looked_at(lines: list[bytes]) -> tuple[bool, int]:
    """Whether something stands open, and the first seq that was looked at."""
    handle = Lines(lines)
    return stands_open(cast("Handle", handle)), handle.first


@given(log=logs())
def test_what_stands_open_is_what_the_fold_says(log: Log) -> None:
    """But for a compaction that a turn's end leaves open, which no writer does."""
    work, lines = NO_TURN, list[bytes]()
    for event in log.events:
        if event.type == "turn/end" and work.compaction is not None:
            break
        work = turn_step(work, event)
        lines.append(event.line)
        assert looked_at(lines)[0] == open_at_end(work)


def test_no_more_is_read_than_the_last_turn() -> None:
    ended = [b'{"type":"turn/start"}', *[b'{"type":"assistant/chunk"}'] * 2_000, b'{"type":"turn/end"}']
    opened = [*ended, b'{"type":"turn/start"}', *[b'{"type":"assistant/chunk"}'] * 600]
    assert looked_at(ended) == (False, len(ended) - 512)
    assert looked_at(opened) == (True, len(opened) - 1_024)
    assert looked_at([b'{"type":"session/title"}'] * 600) == (False, 0)
    assert looked_at([]) == (False, 0)


def test_a_compaction_stands_open_until_its_end() -> None:
    def lines(*types: str) -> list[bytes]:
        return [f'{{"type":"{kind}"}}'.encode() for kind in types]

    assert looked_at(lines("compact/start"))[0]
    assert not looked_at(lines("compact/start", "compact/end"))[0]
    assert looked_at(lines("compact/start", "compact/end", "compact/start", "session/title"))[0]
    assert looked_at(lines("turn/start", "compact/start", "compact/end"))[0]
    assert not looked_at(lines("turn/start", "turn/end", "compact/start", "compact/end"))[0]
