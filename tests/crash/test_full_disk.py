"""Must show 3, in small: the disk becomes full at different moments of a working daemon, and has space again (C-04).

Nothing that was told is lost, refusals name the cause, the same daemon goes on. All 40 moments: `python -m
tests.crash.full_disk`.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

MOMENTS = 8
WAIT_S = 110


@pytest.mark.parametrize("way", ["tmpfs", "limit"])
def test_c04_a_disk_that_is_full_at_whatever_moment_loses_nothing_that_was_told(way: str) -> None:
    command = [sys.executable, "-m", "tests.crash.full_disk", "--moments", str(MOMENTS), "--seed", "3", "--way", way]
    ran = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    *moments, last = ran.stdout.splitlines()
    assert len(moments) == MOMENTS
    assert last.startswith(f"{MOMENTS} moments, ")
    assert last.endswith(" facts, 0 lost")
