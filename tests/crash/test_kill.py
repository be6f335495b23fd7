"""Kill −9 of a real process at a known place; what it made durable is there, and the command line goes on from it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

WAIT_S = 60


class Killed:
    """A child that got stuck, and was killed there."""

    def __init__(self, store: Path, cwd: Path, place: str) -> None:
        child = subprocess.Popen(
            [sys.executable, "-m", "tests.support.crash_child", str(store), str(cwd), place],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert child.stdout is not None
            self.session = child.stdout.readline().split()[1]
            self.durable = int(child.stdout.readline().split()[1])
        finally:
            os.kill(child.pid, signal.SIGKILL)
            child.communicate(timeout=WAIT_S)


def refold(store: Path, cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "refold_server", *arguments, "--store", str(store)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=WAIT_S, check=False)


def events(store: Path, cwd: Path, session: str) -> list[dict[str, Any]]:
    shown = refold(store, cwd, "log", session, "--view", "events", "--json")
    assert shown.returncode == 0, shown.stderr
    return [json.loads(line) for line in shown.stdout.split("\n") if line]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "ws"
    folder.mkdir()
    (folder / "animals.txt").write_text("a horse\nthe zebra sleeps\n")
    return folder


@pytest.mark.parametrize(
    ("place", "closers"),
    [
        ("stream", ["assistant/message", "step/end", "turn/end"]),
        ("tool", ["tool/result", "step/end", "turn/end"]),
    ],
)
def test_c01_b01_what_was_durable_at_a_kill_is_there_and_the_session_goes_on(
    tmp_path: Path, workspace: Path, place: str, closers: list[str]
) -> None:
    store = tmp_path / "store"
    killed = Killed(store, workspace, place)
    before = events(store, workspace, killed.session)
    assert len(before) > killed.durable
    assert [event["seq"] for event in before] == list(range(len(before)))
    assert before[-1]["type"] == ("assistant/chunk" if place == "stream" else "tool/call")

    ran = refold(store, workspace, "run", "Where is the zebra?", "--session", killed.session, "--json")
    assert ran.returncode == 0, ran.stderr
    after = events(store, workspace, killed.session)
    assert after[: len(before)] == before
    assert [event["type"] for event in after[len(before) : len(before) + len(closers)]] == closers
    assert after[len(before) + len(closers)]["type"] == "instance/start"
    assert after[-1]["data"]["reason"]["kind"] == "completed"
    assert [event["data"]["reason"] for event in after if event["type"] == "request/header"] == ["initial", "resume"]
    written = after[len(before)]["data"]
    if place == "stream":
        assert written["interrupted"]
        assert written["content"] == [{"type": "text", "text": "Half a sent"}]
    else:
        assert written["error"]["code"] == "TOOL_OUTCOME_UNKNOWN"

    checked = refold(store, workspace, "verify", killed.session)
    assert checked.returncode == 0, checked.stdout


def test_a_second_kill_and_reopen_changes_nothing_more(tmp_path: Path, workspace: Path) -> None:
    store = tmp_path / "store"
    killed = Killed(store, workspace, "stream")
    assert refold(store, workspace, "run", "   ", "--session", killed.session).returncode == 2  # refused before it opens
    raw = events(store, workspace, killed.session)
    views = [refold(store, workspace, "log", killed.session, "--view", "surface", "--json").stdout for _ in range(2)]
    assert views[0] == views[1]
    assert '"Half a sent"' in views[0]  # a cold read balances the open turn in memory …
    assert events(store, workspace, killed.session) == raw  # … and writes nothing

    opened = [reopened_and_killed(store, workspace, killed.session) for _ in range(2)]
    assert opened[0] == opened[1]
    assert [event["type"] for event in opened[0][len(raw) :]] == ["assistant/message", "step/end", "turn/end"]


def reopened_and_killed(store: Path, workspace: Path, session: str) -> list[dict[str, Any]]:
    """Open the session for writing in another process, kill it, and give the log as it is then."""
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.support.open_child", str(store), session], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "open\n"
    os.kill(child.pid, signal.SIGKILL)
    child.communicate(timeout=WAIT_S)
    return events(store, workspace, session)
