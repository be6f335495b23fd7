"""Owns the choice of the word that the rehearsal provider searches for. Deterministic; knows the question and the paths."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_COMMON: Final = frozenset(
    """
    about after again all also and any are because been before being between both but can computed could defined did does
    doing done each else every explain file files find first for from function give had happen happens has have here how
    into its just kept know last let like line lines list look made make makes many may mean means might more most much
    must name named need not now off one only open other our out over own part place please project read repository
    same say says search see should show some stored such tell text than that the their them then there these they thing
    this those through told too two under until use used uses using very want was way well were what when where whether
    which while who whose why will with word work works workspace would write written you your code say
    """.split()  # noqa: SIM905 - a paragraph of words reads better than a column
)
"""Words that say nothing about what is looked for."""

_WORD: Final = re.compile(r"[^\W\d]\w{2,}")


def rarest_word(question: str, paths: Sequence[str]) -> str | None:
    """Give the word of `question` to search for, None where it has none of three letters or more.

    Names come before words (an underscore, a digit, a capital inside), words of fewer paths before others, longer ones
    before shorter ones, earlier ones before later ones. Common words are taken only if there is nothing else.
    """
    words = list(dict.fromkeys(_WORD.findall(question)))
    telling = [word for word in words if word.lower() not in _COMMON] or words
    lowered = [path.lower() for path in paths]

    def rank(word: str) -> tuple[bool, int, int]:
        return (not _is_name(word), sum(word.lower() in path for path in lowered), -len(word))

    return min(telling, key=rank, default=None)


def _is_name(word: str) -> bool:
    return "_" in word or any(character.isdigit() or character.isupper() for character in word[1:])
