"""A summary that says nothing of its own must not replace a history; a short true one may."""

from __future__ import annotations

import pytest

from refold_server.compaction.compaction_decision import CompactionError, instructions
from refold_server.compaction.summary_substance import check_substance

PROMPT = "Where is the parser?\nTell me at once."


@pytest.mark.parametrize(
    "summary",
    [
        instructions(),
        "What the user wants, word for word where the wording matters\nWhat was found out and decided, with the reasons",
        "1. What the user wants, word for word where the wording matters\n**5. What is done, what is under way**",
        "## Summary\n\n## Next steps\n",
        "## Everything about the parser",
        "Here is the summary:",
        "-\n-\n-",
        "I'm sorry, but I can't help with that.",
        "> Where is the parser?\n- Tell me at once.",
        "zebra " * 5_000,
    ],
)
def test_what_says_nothing_of_its_own_is_no_summary(summary: str) -> None:
    with pytest.raises(CompactionError) as raised:
        check_substance(summary, instructions("keep the names"), PROMPT)
    assert raised.value.again, "a model that is asked again words it differently"


@pytest.mark.parametrize(
    "summary",
    [
        "The user asked where the parser is (core.py) and where the bug is (line 40 of core.py). Nothing was changed yet.",
        "The zebra sleeps.",
        "1. What the user wants\nWhere is the parser?\n\n3. Files and code\ncore.py, line 40",
        "## Files\n- core.py",
        "Der Parser steht in core.py.",
        "用户想知道解析器在哪里。",
    ],
)
def test_a_short_true_summary_is_taken(summary: str) -> None:
    check_substance(summary, instructions("keep the names"), PROMPT)
