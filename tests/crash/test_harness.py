"""Must show 1 of the crash harness, in small: kills at seeded moments and at every fail point, and nothing told is lost.

Cases C-01 (all that was told is there, without a gap), C-03 (a dead owner's session opens at once), C-06 (resuming adds
closers once), C-08 (the map grows while it is killed), E-04 (what waits survives). More: `python -m tests.crash --kills N`.

Invariant: What a client was told survives kill −9 at any moment: replies, events up to the `durable` told; what was sent, or
written to a file, stands in the log; resuming closes once and continues the bytes of the last request; a compaction took
place whole or changed nothing.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.crash.points import POINTS

KILLS = 90
"""Twice for each fail point, every second kill being at one, and 16 for lives that did not get to theirs."""

WAIT_S = 200
pytestmark = pytest.mark.timeout(WAIT_S + 20)


def harness(number: int, seed: int, folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.crash", "--kills", str(number), "--seed", str(seed), "--folder", str(folder)]
    root = Path(__file__).parents[2]
    return subprocess.run([*command, *more], cwd=root, capture_output=True, text=True, timeout=WAIT_S, check=False)


def kills(number: int, seed: int, folder: Path, *more: str) -> Any:
    """Run the harness; give what it says in JSON."""
    ran = harness(number, seed, folder, "--json", *more)
    assert ran.returncode in (0, 1), ran.stderr
    return json.loads(ran.stdout)


def test_c01_c03_c06_c08_e04_no_fact_that_was_told_is_lost_by_a_kill_and_every_fail_point_is_hit(tmp_path: Path) -> None:
    campaign = kills(KILLS, 1, tmp_path)
    assert campaign["failures"] == []
    assert campaign["kills"] == KILLS
    assert campaign["facts"] > 50 * KILLS
    assert {point.name for point in POINTS} - set(campaign["hits"]) == set()


def test_a_daemon_that_promises_too_early_is_found_out(tmp_path: Path) -> None:
    found = kills(6, 3, tmp_path, "--sabotage")
    faults = [fault for failure in found["failures"] for fault in failure["faults"]]
    assert any("told as durable up to" in fault for fault in faults)
    assert all(Path(failure["store"]).is_dir() for failure in found["failures"])
    assert all(failure["again"].startswith("python -m tests.crash --seed 3") for failure in found["failures"])


def test_campaigns_at_once_have_seeds_of_their_own_and_end_as_one(tmp_path: Path) -> None:
    together = kills(2, 5, tmp_path, "--at-once", "2")
    assert (together["kills"], together["failures"]) == (4, [])
    assert len(together["events"]) + together["beside"] == 4
    assert together["facts"] > 0
    assert list(tmp_path.iterdir()) == []


def test_a_campaign_ends_with_one_line_and_leaves_nothing_where_nothing_was_lost(tmp_path: Path) -> None:
    ran = harness(2, 5, tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert re.fullmatch(r"2 kills, \d+ facts, 0 lost", ran.stdout.splitlines()[-1])
    assert list(tmp_path.iterdir()) == []
