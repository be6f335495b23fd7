"""Each way in which a turn can end is reached by what somebody does to a whole daemon, and told in a story that is played.

`test_transcripts.py` holds the stories to what they say, so it is enough to look for the end in the one that names it. The
end `forked` is no story's; `test_forks.py` plays it.

Invariant: There is an ordinary way to each end of a turn.
"""

from __future__ import annotations

import re
from typing import Final

import pytest

from refold_protocol.session.event_data import TURN_ENDS
from tests.daemon import test_forks
from tests.support.transcripts import golden_file

STORY_OF: Final = {
    "completed": "text-turn",
    "max-tokens": "finish-length",
    "aborted": "interrupt-in-stream",
    "error": "provider-error",
    "blocked": "blocked-prompt",
    "interrupted": "kill-in-stream",
    "max-steps": "step-limit",
}
"""The ordinary way to each end: a turn runs to its end, its reply is too long, the user stops it, the provider refuses, a
plugin vetoes the prompt, the daemon is killed, the model never stops asking for tools."""


@pytest.mark.parametrize("end", sorted(STORY_OF))
def test_the_end_of_a_turn_is_told_in_its_story(end: str) -> None:
    told = golden_file(STORY_OF[end]).read_text(encoding="utf-8")
    assert re.search(rf"^ +\d+  turn/end +turn \d+ {end}\b", told, re.MULTILINE)


def test_no_end_of_the_table_is_without_a_way_to_it() -> None:
    assert callable(test_forks.test_a_fork_of_a_turn_that_runs_is_closed_as_forked_and_the_turn_runs_on)
    assert set(TURN_ENDS) == {*STORY_OF, "forked"}
