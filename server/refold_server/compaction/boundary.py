"""Owns the places at which a text may be cut: between two lines where one ends near, else between two characters.

A character is what people see as one: letters with their marks, emoji with their joiners, pairs that make a flag, syllables.
The rules are those of Unicode's extended grapheme clusters as far as the standard library tells them apart. Pure.
"""

from __future__ import annotations

from typing import Final
from unicodedata import category, combining

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
