"""Emacs' own jsonrpc.el, in batch: the library under eglot, with its own ideas of ids, nulls and empty objects. Cases D-01,
D-02."""

from __future__ import annotations

import json
import subprocess
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.support.daemons import SERVE, Place
from tests.support.editors import (
    HANGING,
    ORDERLY,
    check_disposed,
    check_orderly,
    editor,
    find,
    hanging_place,
    kill_and_wait,
    report,
)
from tests.support.fake_provider import FakeProvider

pytestmark = pytest.mark.anyio

SESSION = Path(__file__).parent / "emacs" / "session.el"


@pytest.fixture
def emacs() -> str:
    """An Emacs of version 27 or later, which has jsonrpc.el and its own JSON."""
    return find("emacs", "install Emacs 27 or later; on Debian: apt-get install emacs-nox")


def run(emacs: str, mode: str, place: Place) -> AbstractContextManager[subprocess.Popen[bytes]]:
    told = json.dumps({"mode": mode, "store": str(place.store), "command": SERVE})
    command = [emacs, "-Q", "--batch", "-l", str(SESSION)]
    return editor(place, command, {"REFOLD_TEST": told, "HOME": str(place.root), "LC_ALL": "C.UTF-8"})


async def test_emacs_has_a_whole_conversation_and_the_daemon_ends_with_0(emacs: str, place: Place) -> None:
    with FakeProvider(*ORDERLY) as provider:
        place.provider(provider.base_url)
        with run(emacs, "orderly", place) as process:
            told = report(process, place)
            assert process.wait() == 0
    assert (told["stray"], told["changed"]) == ([], True)
    await check_orderly(told, place)
    prompts = [one["data"] for one in await place.recorded(told["session"]) if one["type"] == "input/accepted"]
    assert prompts[0]["content"] == [{"type": "text", "text": "What is here? ü"}]


def test_emacs_that_exits_without_shutdown_gets_1(emacs: str, place: Place) -> None:
    with run(emacs, "abrupt", place) as process:
        told = report(process, place)
        assert process.wait() == 0
    assert (told["stray"], told["code"]) == ([], 1)


async def test_d01_d02_no_daemon_and_no_tool_outlives_an_emacs_that_is_killed(emacs: str, place: Place) -> None:
    with FakeProvider(*HANGING) as provider:
        hanging_place(place, provider.base_url)
        with run(emacs, "orphan", place) as process:
            told = report(process, place)
            kill_and_wait(process, told)
    assert told["stray"] == []
    await check_disposed(told, place)
