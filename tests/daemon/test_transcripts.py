"""Stories that whole daemons play are told today as they were: one golden transcript for each scenario of the log's rules.

The files are written anew by `python -m tests.support.transcripts` (a part of `make golden`).
"""

from __future__ import annotations

import difflib
import inspect

import pytest

from tests.support.transcripts import GOLDEN, STORIES, golden_file, transcript

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("name", STORIES)
async def test_a_story_is_told_today_as_it_was(name: str) -> None:
    """Invariant: What clients see in each scenario of the loop and of kills is what they saw before, and every log of it can be
    proven.
    """
    told = (await transcript(name)).split("\n")
    golden = golden_file(name).read_text(encoding="utf-8").split("\n")
    difference = difflib.unified_diff(golden, told, f"golden/transcripts/{name}.txt", "told today", lineterm="", n=5)
    if lines := list(difference):
        pytest.fail("\n".join(lines), pytrace=False)


def test_every_story_has_a_file_and_every_file_a_story() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == set(STORIES)


@pytest.mark.parametrize("name", STORIES)
def test_a_story_has_a_title_says_what_it_shows_and_ends_with_a_proof(name: str) -> None:
    title, _, shows = (inspect.getdoc(STORIES[name]) or "").partition("\n\n")
    assert title
    assert "\n" not in title
    assert "Rule:" in shows
    last = [line for line in golden_file(name).read_text(encoding="utf-8").split("\n") if " > " in line][-1]
    assert last.split()[2] == "log/verify"
