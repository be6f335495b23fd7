"""The judging of a summary by its content: one that says nothing of its own must not replace a history.

Headings, lines of the instructions and of the last prompt, and repetitions are no content; nor are words that the
instructions gave, or that stand in any text. Pure. Whether what it says is true is nobody's to judge here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from refold_protocol.session.events import Event, UserMessage
from refold_protocol.session.messages import text_of
from refold_server.compaction.compaction_decision import COMPACTION, CompactionError

_WORD: Final = re.compile(r"\w+")
_MARKS: Final = re.compile(r"^(?:[\s>*+_`-]|\d+[.)])+|[\s:*_`]+$")
_MOST_REPEATED: Final = 200
"""A text says something new at least once in so many words."""

_COMMON: Final = frozenset(
    _WORD.findall(
        "a an and any are as at be been but by can could did do does for from had has have he her here hers him "
        "his i if in into is it its just let like m may me might more my no not of ok okay on or our please re s "
        "sees she should so some sorry such t than that the their them then there these they this those to unable "
        "up us ve very was we were what when where which who why will with would yes you your assist help "
        "assistant conversation following history model session summary summarise summarize summarised summarized "
        "text cannot unfortunately certainly sure next steps"
    )
)
"""Words that say nothing by themselves."""


def check_substance(summary: str, instructions: str, prompt: str) -> None:
    """Raise CompactionError for a summary without content of its own."""
    known = {*_lines(instructions), *_lines(prompt)}
    said = [line for line in dict.fromkeys(_lines(summary)) if line not in known]
    own = set(_words(said)) - _COMMON - set(_words(_lines(instructions)))
    if not own:
        raise CompactionError(
            "The summary says nothing of its own, beside headings, words of its instructions or the last prompt.", again=True
        )
    if len(own) * _MOST_REPEATED < sum(1 for _ in _words(_lines(summary))):
        raise CompactionError("The summary repeats a few words again and again.", again=True)


def last_prompt(region: Iterable[Event]) -> str:
    """Give the text of the last message of the user in a region."""
    prompts = (node.data for node in region if isinstance(node.data, UserMessage) and node.data.source != COMPACTION)
    return next((text_of(one.content) for one in reversed(tuple(prompts))), "")


def _lines(text: str) -> Iterator[str]:
    """Iterate over the lines that are no headings, without marks of lists and emphasis, in lower case."""
    for line in text.split("\n"):
        plain = _MARKS.sub("", line).lower()
        if plain and not line.lstrip().startswith("#"):
            yield plain


def _words(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        yield from _WORD.findall(line)
