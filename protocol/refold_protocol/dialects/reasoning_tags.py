"""Reasoning that a server sends inside the text: tags at the head of a reply, however they are cut.

Many local models put what they think between tags of their chat template before they answer. What stands between an opening
tag at the very beginning and its closing tag is reasoning; tags anywhere else are text. White space around the tags is the
template's and goes. A tag that is never closed leaves all that follows as reasoning. Pure, and linear in what is fed.
"""

from __future__ import annotations

from typing import Final

TAGS: Final = {
    "<think>": "</think>",
    "<thinking>": "</thinking>",
    "<thought>": "</thought>",
    "<reasoning>": "</reasoning>",
    "<seed:think>": "</seed:think>",
    "[THINK]": "[/THINK]",
    "◁think▷": "◁/think▷",
    "<|begin_of_thought|>": "<|end_of_thought|>",
}
"""The tags of chat templates that are known: opening and closing."""

_LONGEST: Final = max(map(len, (*TAGS, *TAGS.values())))

_MOST_BLANK: Final = 64
"""So much white space is held back until it is clear whether a tag follows."""


class ReasoningTags:
    """The head of one reply's text. `opened`: the template wrote the opening tag itself, so the reply begins inside."""

    __slots__ = ("_began", "_closing", "_held", "_passed", "done")

    def __init__(self, *, opened: bool = False) -> None:
        self._closing: tuple[str, ...] = tuple(TAGS.values()) if opened else ()
        self._held = ""
        self._began = False  # reasoning was given
        self._passed = False  # a closing tag was passed
        self.done = False
        """Whether all that follows is text."""

    def feed(self, text: str) -> list[tuple[bool, str]]:
        """Take the next piece of the text; give what is clear now, in order: whether it is reasoning, and the text."""
        held, self._held = self._held + text, ""
        given: list[tuple[bool, str]] = []
        if not (self._closing or self._passed):
            held = self._look_for_opening(held, given)
        if self._closing:
            held = self._look_for_closing(held, given)
        if self._passed and (rest := held.lstrip()):
            self.done = True
            given.append((False, rest))
        return given

    def close(self) -> list[tuple[bool, str]]:
        """Give what was held back when no more text comes."""
        held, self._held, self.done = self._held, "", True
        is_reasoning = bool(self._closing)
        return [(is_reasoning, held)] if held and not (is_reasoning and held.isspace()) else []

    def _look_for_opening(self, held: str, given: list[tuple[bool, str]]) -> str:
        """Give what follows an opening tag; nothing where there is none, or not yet."""
        head = held.lstrip()
        for opening, closing in TAGS.items():
            if head.startswith(opening):
                self._closing = (closing,)
                return head[len(opening) :]
        if len(held) - len(head) <= _MOST_BLANK and any(opening.startswith(head) for opening in TAGS):
            self._held = held
        else:
            self.done = True
            given.append((False, held))
        return ""

    def _look_for_closing(self, held: str, given: list[tuple[bool, str]]) -> str:
        """Give reasoning as far as it is sure, and what follows the closing tag; what may be the beginning of one, and white
        space before it, is held back."""
        held = held if self._began else held.lstrip()
        found = [(place, len(closing)) for closing in self._closing if (place := held.find(closing)) >= 0]
        if found:
            place, length = min(found)
            self._reason(held[:place].rstrip(), given)
            self._closing, self._passed = (), True
            return held[place + length :]
        sizes = range(min(_LONGEST - 1, len(held)), 0, -1)
        kept = next((size for size in sizes if any(one.startswith(held[-size:]) for one in self._closing)), 0)
        sure = held[: len(held) - kept]
        blank = sure.rstrip()
        end = len(blank) if len(sure) - len(blank) <= _MOST_BLANK else len(sure)
        self._reason(held[:end], given)
        self._held = held[end:]
        return ""

    def _reason(self, text: str, given: list[tuple[bool, str]]) -> None:
        if text:
            self._began = True
            given.append((True, text))
