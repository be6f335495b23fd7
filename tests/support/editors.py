"""What the tests of all foreign editors share: the conversation that they have, how a missing one is told, their ends.

An editor runs a script of its own that has the conversation and writes one line of JSON about it. What happened is then
looked up in the log, too: the script's word is not enough.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.chat_stream import call, calls, chunk, reply, text
from tests.support.daemons import Json, Place, endless_search, types
from tests.support.fake_provider import Answer, answer
from tests.support.neovim import Ending

ORDERLY: Final[tuple[Answer, ...]] = (
    answer(calls(call(0, "c0", "list_files", "{}")) + chunk({}, "tool_calls")),
    answer(reply("One file: ü.")),
    answer(text("Half"), end="hang"),
)
"""The provider's part: a turn with a tool that needs no approval, then a turn that hangs after its first word."""

HANGING: Final[tuple[Answer, ...]] = (
    answer(calls(call(0, "c0", "search_text", '{"pattern":"(a+)+$","regex":true}')) + chunk({}, "tool_calls")),
)
"""A turn whose tool, a process of its own, never ends."""

INTERRUPTED: Final[Json] = {"kind": "aborted", "cause": {"kind": "user"}}


def find(program: str, how: str) -> str:
    """Give the path of a program. Skips the test where there is none, with a line that says how to get it; fails it in CI,
    where nothing is skipped in silence."""
    found = shutil.which(program)
    return found if found is not None else missing(f"{program} is needed: {how}")


def missing(line: str) -> Any:
    """Skip the test, or in CI fail it. Never returns."""
    if os.environ.get("CI"):
        pytest.fail(line)
    pytest.skip(line)


@contextmanager
def editor(place: Place, command: Sequence[str], env: Mapping[str, str]) -> Generator[subprocess.Popen[bytes]]:
    """Run an editor in the place's workspace, with pipes to its input and output; its errors go to `stderr.txt`."""
    pipe = subprocess.PIPE
    with place.errors.open("ab") as errors:
        process = subprocess.Popen(
            command, cwd=place.workspace, env=place.daemon_env | dict(env), stdin=pipe, stdout=pipe, stderr=errors
        )
    with process:
        try:
            yield process
        finally:
            process.kill()


def report(process: subprocess.Popen[bytes], place: Place) -> Any:
    """Read the line that an editor writes."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, place.errors.read_text()
    return json.loads(line)


async def check_orderly(told: Json, place: Place) -> None:
    """Check what an editor saw of the whole conversation, and what is in the log of it."""
    recorded = await place.recorded(told["session"])
    assert told["types"] == [event["type"] for event in recorded]
    ends = [event["data"]["reason"] for event in recorded if event["type"] == "turn/end"]
    assert [told["first"], told["second"]] == ends == [{"kind": "completed"}, INTERRUPTED]
    (result,) = (event for event in recorded if event["type"] == "tool/result")
    assert result["data"]["content"][0]["text"] == "animals.txt"
    assert types(recorded)[-4:] == ["assistant/chunk", "assistant/message", "step/end", "turn/end"]
    assert (told["name"], told["unknown"], told["code"]) == ("refold", -32601, 0)
    await place.verify(told["session"])


def kill_and_wait(process: subprocess.Popen[bytes], told: Json) -> None:
    """Kill an editor whose daemon runs a tool, and wait until daemon and tool are gone. Pytest's limit ends what stays."""
    left = [Ending(told["daemon"]), Ending(first_child(told["daemon"]))]
    process.kill()
    for ending in left:
        ending.wait()


async def check_disposed(told: Json, place: Place) -> None:
    """Check that the turn of a killed editor was cancelled, not left open."""
    recorded = await place.recorded(told["session"])
    assert recorded[-1]["type"] == "turn/end"
    reason = recorded[-1]["data"]["reason"]
    assert (reason["kind"], reason["cause"]["kind"]) == ("aborted", "disposed")


def first_child(pid: int) -> int:
    """Wait until a process has a child; give its process id."""
    while True:
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(FileNotFoundError):  # a thread that ended meanwhile
                if children := (task / "children").read_text().split():
                    return int(children[0])


def hanging_place(place: Place, base_url: str) -> None:
    """Have the place's daemons ask this provider, and a search in the workspace take for ever."""
    endless_search(place)
    place.provider(base_url)
