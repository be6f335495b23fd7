"""VS Code's wire library in plain node: the reader, writer and cancellation that every extension uses. Cases D-01, D-02."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
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
    missing,
    report,
)
from tests.support.fake_provider import FakeProvider

pytestmark = pytest.mark.anyio

PACKAGE = Path(__file__).parent / "node"
GET = "install Node.js 18 or later with npm; on Debian: apt-get install nodejs npm"


@contextmanager
def alone_in(folder: Path) -> Generator[None]:
    """Wait until no other test process is in here for the folder."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@pytest.fixture(scope="session")
def node() -> str:
    """A node that finds the package's dependencies; they are installed when the lock file is another than last time."""
    program, npm = find("node", GET), find("npm", GET)
    lock, noted = PACKAGE / "package-lock.json", PACKAGE / "node_modules" / ".installed-lock.json"
    with alone_in(PACKAGE):
        if not noted.exists() or noted.read_bytes() != lock.read_bytes():
            done = subprocess.run([npm, "ci"], cwd=PACKAGE, capture_output=True, text=True, check=False)
            if done.returncode:
                missing(f"`npm ci` in {PACKAGE} failed; it needs a registry once: {done.stderr[-500:]}")
            shutil.copy(lock, noted)
    return program


def command(node: str, mode: str, place: Place) -> list[str]:
    return [node, str(PACKAGE / "session.mjs"), mode, str(place.store), *SERVE]


async def test_node_has_a_whole_conversation_and_the_daemon_ends_with_0(node: str, place: Place) -> None:
    with FakeProvider(*ORDERLY) as provider:
        place.provider(provider.base_url)
        with editor(place, command(node, "orderly", place), {}) as process:
            told = report(process, place)
            assert process.wait() == 0
    assert (told["stray"], told["changed"]) == ([], True)
    await check_orderly(told, place)


def test_node_that_exits_without_shutdown_gets_1(node: str, place: Place) -> None:
    with editor(place, command(node, "abrupt", place), {}) as process:
        told = report(process, place)
        assert process.wait() == 0
    assert (told["stray"], told["code"]) == ([], 1)


@pytest.mark.parametrize("mode", ["orphan", "held"])
async def test_d01_d02_no_daemon_and_no_tool_outlives_a_node_that_is_killed(node: str, place: Place, mode: str) -> None:
    """`held`: the pipe stays open, so that only the process that `initialize` named tells of the death."""
    with FakeProvider(*HANGING) as provider:
        hanging_place(place, provider.base_url)
        with editor(place, command(node, mode, place), {}) as process:
            told = report(process, place)
            kill_and_wait(process, told)
    assert told["stray"] == []
    await check_disposed(told, place)


def test_the_lock_file_pins_every_package_and_names_no_address() -> None:
    text = (PACKAGE / "package-lock.json").read_text()
    assert "://" not in text
    assert text.count('"integrity": "sha512-') == text.count('"node_modules/') > 0
