"""The shortening of large tool results and messages: which are large, what is left of one, and where a text may be cut.

A result that was shortened keeps its beginning, its end and a note with the seq of the whole one, which stays in the log.
A message is shortened only where nothing else helps. Nothing is shortened twice. A text is cut between two lines where one
ends near, else between two characters: what people see as one, letters with their marks, emoji with their joiners, pairs that
make a flag, syllables. The rules are those of Unicode's extended grapheme clusters as far as the standard library tells them
apart. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final
from unicodedata import category, combining

from msgspec import Struct
from msgspec.structs import replace

from refold_protocol.session.events import (
    ContextMessage,
    Draft,
    Event,
    Replace,
    SteeringMessage,
    ToolResult,
    UserMessage,
)
from refold_protocol.session.messages import Message, ResultBlock, TextBlock, text_content
from refold_protocol.session.projection import derive_message
from refold_protocol.session.token_estimate import MeterProfile, estimate_message

LINE: Final = 200
"""So far a cut moves to fall between two lines, and never further than half of what is kept."""

_CHARACTER: Final = 64
"""So far a cut moves to fall between two characters: nothing that is written by people is longer."""

_JOINER: Final = "\u200d"
_VIRAMA: Final = 9
"""The combining class of the sign that joins two consonants of Indic scripts."""

_EXTENDING: Final = frozenset("\u200c\u200d\u0e33\u0eb3\uff9e\uff9f")
"""Characters that are no marks and belong to the one before."""


def head_end(text: str, kept: int) -> int:
    """Give where a head of about `kept` characters ends; it is never longer."""
    line = text.rfind("\n", max(0, kept - min(LINE, kept // 2)), kept)
    at = kept if line < 0 else line
    least = max(0, at - _CHARACTER)
    for place in range(at, least, -1):
        if not _belongs(text, place):
            return place
    return at if least and _belongs(text, least) else least


def tail_start(text: str, kept: int) -> int:
    """Give where a tail of about `kept` characters begins; it is never longer."""
    at = len(text) - kept
    line = text.find("\n", at, at + min(LINE, kept // 2))
    at = at if line < 0 else line + 1
    most = min(len(text), at + _CHARACTER)
    for place in range(at, most):
        if not _belongs(text, place):
            return place
    return at if most < len(text) and _belongs(text, most) else most


def _belongs(text: str, at: int) -> bool:
    """Tell whether the character at `at` belongs to the one before it."""
    if not 0 < at < len(text):
        return False
    before, here = text[at - 1], text[at]
    if before == _JOINER or (before, here) == ("\r", "\n"):
        return True
    if here < "\u0300":
        return False
    if category(here).startswith("M") or here in _EXTENDING or _is_modifier(here):
        return True
    if combining(before) == _VIRAMA and category(here) == "Lo":
        return True
    return "\u1160" <= here <= "\u11ff" or (_is_indicator(here) and _indicators_before(text, at) % 2 == 1)


def _is_modifier(here: str) -> bool:
    """Tell whether it is a skin tone, or a tag of a region's flag."""
    return "\U0001f3fb" <= here <= "\U0001f3ff" or "\U000e0020" <= here <= "\U000e007f"


def _is_indicator(here: str) -> bool:
    return "\U0001f1e6" <= here <= "\U0001f1ff"


def _indicators_before(text: str, at: int) -> int:
    """Count the letters of flags that stand right before `at`: two make one."""
    count = 0
    while at > count and _is_indicator(text[at - count - 1]):
        count += 1
    return count


_SHARE: Final = 64
"""A result is large that takes more than one in so many tokens of the window."""

_LEAST: Final = 400
"""No result of at most so many tokens is large."""

_READ: Final = 8
"""A piece of a result that is read again takes at most one in so many tokens of the window."""

_KEPT: Final = 3
"""One in so many tokens of what is large is kept."""

_MESSAGE: Final = 8
"""A message is large that takes more than one in so many tokens of the window."""

_MESSAGES: Final = (UserMessage, SteeringMessage, ContextMessage)
_MESSAGE_NOTE: Final = "because the message does not fit the window; ask for the part that is needed"
_ONLY_IMAGES: Final = "[… the images of this message were left out because it does not fit the window …]"


class Cut(Struct, frozen=True):
    """A node that can be replaced by a shorter one, and the tokens which that saves."""

    node: Event
    shorter: ToolResult | UserMessage | SteeringMessage | ContextMessage
    saved: int

    @property
    def draft(self) -> Draft:
        """The event that puts the shorter one in place."""
        seq = self.node.seq
        return Draft(self.shorter, Replace(seq, seq), ((seq, seq),))


def cuts_of(nodes: Sequence[Event], prices: Sequence[int], profile: MeterProfile) -> tuple[Cut, ...]:
    """Give what can be shortened, in the order of `nodes`; `prices` are theirs. O(characters of what is large)."""
    large = large_of(profile.window)
    return tuple(_cuts(zip(nodes, prices, strict=True), large, profile))


def message_cuts(nodes: Sequence[Event], prices: Sequence[int], profile: MeterProfile) -> tuple[Cut, ...]:
    """Give the messages of a user, of steering and of context that can be shortened because they take a large part of the
    window by themselves, but for the last prompt, which nobody answered yet."""
    prompts = [place for place, node in enumerate(nodes) if isinstance(node.data, UserMessage)]
    last = prompts[-1] if prompts else len(nodes)
    return tuple(_message_cuts(zip(nodes[:last], prices[:last], strict=True), profile))


def _message_cuts(priced: Iterable[tuple[Event, int]], profile: MeterProfile) -> Iterator[Cut]:
    most = profile.window // _MESSAGE
    for node, price in priced:
        data = node.data
        if price <= most or isinstance(node.surface_op, Replace) or not isinstance(data, _MESSAGES):
            continue
        characters = sum(len(block.text) for block in data.content if isinstance(block, TextBlock))
        kept = int(characters * (most // _KEPT) / price)
        content = tuple(
            TextBlock(_with_gap(block.text, kept * len(block.text) // characters, _MESSAGE_NOTE))
            for block in data.content
            if isinstance(block, TextBlock) and block.text
        )
        shorter = replace(data, content=content or text_content(_ONLY_IMAGES))
        message = derive_message(replace(node, data=shorter))
        saved = price - (0 if message is None else estimate_message(message, profile.density))
        if saved > 0:
            yield Cut(node, shorter, saved)


def large_of(window: int) -> int:
    """Give above how many tokens a result is large in a window of so many."""
    return max(_LEAST, window // _SHARE)


def readable(text: str, profile: MeterProfile) -> int:
    """Give how many of a text's first characters a result may hold that stays whole until the model has read it: less than
    what stays at the end of a history."""
    most, count = profile.window // _READ, len(text)
    while count > 1 and (price := estimate_message(Message("user", text_content(text[:count])), profile.density)) > most:
        count = max(1, count * most // price)
    return count


def before_tail(prices: Sequence[int], retain: int) -> int:
    """Give how many nodes stand before the last ones that together cost at least `retain` tokens."""
    left, count = retain, len(prices)
    while count and left > 0:
        count -= 1
        left -= prices[count]
    return count


def _cuts(priced: Iterable[tuple[Event, int]], large: int, profile: MeterProfile) -> Iterator[Cut]:
    for node, price in priced:
        data = node.data
        if price <= large or not isinstance(data, ToolResult) or isinstance(node.surface_op, Replace):
            continue
        characters = sum(len(block.text) for block in data.content if isinstance(block, TextBlock))
        kept = int(characters * (large // _KEPT) / price)
        shorter = replace(data, content=tuple(_shortened(data.content, kept, characters, node.seq)), meta=None)
        message = derive_message(replace(node, data=shorter))
        saved = price - (0 if message is None else estimate_message(message, profile.density))
        if saved > 0:
            yield Cut(node, shorter, saved)


def _shortened(content: tuple[ResultBlock, ...], kept: int, characters: int, seq: int) -> Iterator[ResultBlock]:
    """Shorten each text by the same share, so that about `kept` of all characters are left."""
    for block in content:
        if isinstance(block, TextBlock) and block.text:
            yield TextBlock(shortened(block.text, kept * len(block.text) // characters, seq))
        else:
            yield block


def shortened(text: str, kept: int, seq: int) -> str:
    """Give about `kept` characters of a text, two thirds from its beginning, around a note that names the event `seq`; the
    text itself where that would be no shorter."""
    return _with_gap(text, kept, f"to make room; read_result with seq {seq} gives the whole result")


def _with_gap(text: str, kept: int, why: str) -> str:
    kept = min(kept, len(text))
    head = head_end(text, kept * 2 // 3)
    tail = max(tail_start(text, kept // 3), head)
    note = f"\n[… {tail - head:,} characters cut out here {why} …]\n"
    return text if tail - head <= len(note) else f"{text[:head]}{note}{text[tail:]}"
