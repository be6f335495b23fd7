"""The bound on a result's text, and what is recorded for output that is empty, broken or not text.

What this gives is what is recorded and what the model sees: nothing downstream shortens it again. Lengths are in
characters (Unicode code points), so that a cut never falls inside one.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from refold_protocol.json_text import repair_surrogates
from refold_protocol.session.messages import ResultBlock, TextBlock

NO_OUTPUT: Final = "(no output)"
"""What stands for output without anything visible: dropping the result would break the pairing of calls and results."""

_NOTE_ROOM: Final = 80
"""Characters kept free for the note, which is shorter for any number of fewer than thirty digits."""


class HeadTail:
    """Keeps the head and the tail of a text that comes in pieces, in memory bounded by the limit, which is at least 1.

    The same text gives the same result, however it was cut into pieces.
    """

    def __init__(self, limit: int) -> None:
        self._limit = max(limit, 1)
        self._head: list[str] = []
        self._tail: deque[str] = deque()
        self._head_length = 0
        self._tail_length = 0
        self.length = 0
        """Characters that came so far."""

    @property
    def cut(self) -> bool:
        """Whether something is missing from `text()`."""
        return self.length > self._limit

    def add(self, piece: str) -> None:
        """Take the next piece."""
        self.length += len(piece)
        room = self._limit - self._head_length
        if room > 0:
            self._head.append(piece[:room])
            self._head_length += len(self._head[-1])
            piece = piece[room:]
        if piece:
            self._tail.append(piece[-self._limit :])
            self._tail_length += len(self._tail[-1])
            while self._tail_length - len(self._tail[0]) >= self._limit:
                self._tail_length -= len(self._tail.popleft())

    def text(self) -> str:
        """Give the whole text if it fits the limit, else its head and its tail around a note of what is missing."""
        head = "".join(self._head)
        if not self.cut:
            return head
        room = max(self._limit - _NOTE_ROOM, 0)
        tail_room = room // 2
        kept = head[: room - tail_room]
        end = (head + "".join(self._tail))[-tail_room:] if tail_room else ""
        missing = self.length - len(kept) - len(end)
        return f"{kept}\n[... {missing:,} of {self.length:,} characters left out here ...]\n{end}"[: self._limit]


def bound_text(text: str, limit: int) -> str:
    """Give `text`, or its head and tail with a note between them, in at most `limit` characters."""
    if len(text) <= limit:
        return text
    keeper = HeadTail(limit)
    keeper.add(text)
    return keeper.text()


def text_of(data: bytes) -> str:
    """Read bytes as UTF-8; each one that is not becomes U+FFFD."""
    return data.decode("utf-8", "replace")


def settle(content: tuple[ResultBlock, ...], limit: int) -> tuple[ResultBlock, ...]:
    """Give content that can be recorded and sent: valid Unicode, at most `limit` characters of text, never empty.

    Text above the limit is joined by line breaks into one block, in the place of the first, and cut there. Text blocks
    without anything visible are left out.
    """
    texts = [repair_surrogates(block.text) for block in content if isinstance(block, TextBlock)]
    shown = [text for text in texts if text.strip()]
    if sum(map(len, shown)) > limit:
        shown = [bound_text("\n".join(shown), limit)]
    waiting = deque(TextBlock(text) for text in shown)
    settled: list[ResultBlock] = []
    for block in content:
        if not isinstance(block, TextBlock):
            settled.append(block)
        elif waiting and block.text.strip():
            settled.append(waiting.popleft())
    return tuple(settled) or (TextBlock(NO_OUTPUT),)
