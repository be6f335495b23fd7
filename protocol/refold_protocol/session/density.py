"""Owns how many characters of a text make a token: one figure for all text, or one for each kind of letters.

The unit of text is the Unicode code point, so that an estimate depends on no encoding. Pure; knows no model's vocabulary:
the figures of `script` were measured on one (`python -m tests.bench.density`), and rounded to the safe side.
"""

from __future__ import annotations

import re
from math import ceil, isfinite
from typing import Final, Literal, TypeAlias

from msgspec import Struct

CHARACTERS_PER_TOKEN: Final = 4.0
"""The density of text where nothing else is known of a model."""

Counting: TypeAlias = Literal["flat", "script"]
"""How characters are counted: all alike, or by the kind of their letters."""


class Density(Struct, frozen=True, gc=False):
    """How texts of a model are priced. `characters` is code points a token, above 0 and finite.

    `flat` prices all text so; it is much too low for Chinese, Japanese and Korean. `script` prices Latin letters and white
    space so, and what vocabularies cut finer by figures of its own, which `characters` bounds from above.
    """

    characters: float = CHARACTERS_PER_TOKEN
    counting: Counting = "flat"

    def tokens(self, text: str) -> int:
        """Give the tokens of a text, rounded up; 0 for an empty one. O(length)."""
        if self.counting == "flat":
            return ceil(len(text) / self.characters)
        return ceil(round(self._by_script(text), 6))

    def _by_script(self, text: str) -> float:
        tokens, rest = 0.0, len(text)
        for pattern, characters in _NARROW if text.isascii() else _ALL:
            found = sum(map(len, pattern.findall(text)))
            tokens += found / min(characters, self.characters)
            rest -= found
        return tokens + rest / self.characters


def is_density(characters: float) -> bool:
    """Tell whether a number can be a density."""
    return isfinite(characters) and characters > 0


_IDEOGRAPHS: Final = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_SYLLABLES: Final = "\u1100-\u11ff\u3000-\u30ff\u3130-\u318f\uac00-\ud7a3\uff00-\uffef"
_SIGNS: Final = "\u200d\u2190-\u2bff\ufe0f"
_PICTURES: Final = "\U0001f000-\U0001faff"
_RARE: Final = "\U00020000-\U000323af"
_NARROW: Final = ((re.compile(r"[!-@\[-`{-~]+"), 2.25),)
_ALL: Final = (
    *_NARROW,
    (re.compile(f"[{_IDEOGRAPHS}]+"), 1.3),
    (re.compile(f"[{_SYLLABLES}]+"), 1.2),
    (re.compile(f"[{_SIGNS}]+"), 1.0),
    (re.compile(f"[{_PICTURES}]+"), 0.5),
    (re.compile(f"[{_RARE}]+"), 0.25),
    (re.compile(f"[^\\x00-\\x7f{_IDEOGRAPHS}{_SYLLABLES}{_SIGNS}{_PICTURES}{_RARE}]+"), 1.5),
)
"""Digits and signs of ASCII; ideographs; kana, hangul and wide signs; arrows, mathematics, boxes and dingbats; emoji, whose
bytes are tokens as often as not; ideographs that no vocabulary has; everything else. Characters a token."""
