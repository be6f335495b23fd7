"""LMDB alone beside kills, in small; thousands of lives: `python -m tests.crash.lmdb_lives --lives N`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.lmdb_lives import WAYS, Found, Round, lives, one_round

LIVES = 60


@pytest.mark.parametrize("way", WAYS)
def test_processes_that_open_and_close_in_their_turn_lose_no_commit_and_are_refused_nothing(way: str) -> None:
    found = lives(way, LIVES, "1", locked=True)
    assert (found.lost, found.torn, found.refused) == (0, 0, 0)
    assert found.lives == LIVES
    assert found.said >= LIVES // 3


def test_a_file_that_ends_before_what_was_known_of_it_is_found_out(tmp_path: Path) -> None:
    found = Found()
    (tmp_path / "data").mkdir()
    one_round(Round(tmp_path / "data", "openers", True), "1", 1_000_000_000, found)
    assert found.lost == 1
