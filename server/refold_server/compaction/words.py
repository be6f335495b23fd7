"""Owns the words around a summary: how a model is asked for one, and what it later finds in place of its history.

Both are recorded where they are used, so that they may change in a later release. Pure.
"""

from __future__ import annotations

from typing import Final

_ASKED: Final = """\
The window of this session is filling up. Everything above will be replaced by a summary, and you write it now. You will go \
on from it without seeing the messages above, so whatever is not in it is lost to you.

Use these headings, and leave out one that would be empty:
1. What the user wants, word for word where the wording matters
2. What was found out and decided, with the reasons
3. Files and code: exact paths, names and line numbers, and short passages that are needed word for word
4. Errors, and what became of each
5. What is done, what is under way, what comes next

Answer with the summary alone, as text. Call no tool."""

_WISHES: Final = "\n\nThe user says about this summary: "

_OPENING: Final = (
    "The earlier part of this session was replaced by a summary of it. Take it as what happened, and go on from there."
    "\n\n<summary>\n"
)
_CLOSING: Final = "\n</summary>"


def instructions(wishes: str | None = None) -> str:
    """Give what asks for a summary, with what a person wants of it."""
    return _ASKED if wishes is None or not wishes.strip() else f"{_ASKED}{_WISHES}{wishes.strip()}"


def replacement(summary: str) -> str:
    """Give the text that stands for a region from now on."""
    return f"{_OPENING}{summary.strip()}{_CLOSING}"
