"""A command that prints a key: bounded in time and output, and nothing of it stays."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from refold_server.providers.key_command import KeyCommandError, printed_key

pytestmark = pytest.mark.anyio


def shell(text: str) -> tuple[str, ...]:
    return ("sh", "-c", text)


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    """A named pipe: who has it open for writing lives."""
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


@asynccontextmanager
async def left_by_all(pipe: Path) -> AsyncGenerator[anyio.Event]:
    """Run a block, and wait until nobody has the pipe open any more. Gives what is set at the first byte."""
    begun = anyio.Event()

    async def read() -> None:
        async with await anyio.open_file(pipe, "rb", buffering=0) as file:
            await file.read(1)
            begun.set()
            assert await file.read() == b""

    with anyio.fail_after(60):  # the children would live for five minutes
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            yield begun


async def test_the_first_line_is_the_key() -> None:
    assert await printed_key(shell("printf ' sk-1 \\nmore'")) == "sk-1"


async def test_a_child_that_keeps_the_output_open_is_neither_waited_for_nor_left(pipe: Path) -> None:
    async with left_by_all(pipe):
        assert await printed_key(shell(f"exec 3> {pipe}; printf x >&3; sleep 300 & echo sk-quick")) == "sk-quick"


async def test_a_command_that_takes_too_long_is_ended_with_its_children(pipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("refold_server.providers.key_command.COMMAND_SECONDS", 0.5)
    async with left_by_all(pipe):
        with pytest.raises(KeyCommandError, match=r"within 0\.5 s"):
            await printed_key(shell(f"trap '' TERM; exec 3> {pipe}; printf x >&3; sleep 300 & wait; sleep 300"))


async def test_who_stops_waiting_ends_the_command_and_its_children(pipe: Path) -> None:
    async with left_by_all(pipe) as begun, anyio.create_task_group() as tasks:
        tasks.start_soon(printed_key, shell(f"exec 3> {pipe}; printf x >&3; sleep 300 & wait"))
        await begun.wait()
        tasks.cancel_scope.cancel()


async def test_a_flood_of_output_is_bounded_and_its_first_line_counts() -> None:
    code = "import sys; sys.stdout.write('sk-first\\n' + 'x' * 50_000_000)"
    assert await printed_key((sys.executable, "-c", code)) == "sk-first"


async def test_a_line_without_end_is_cut_and_not_kept_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("refold_server.providers.key_command.OUTPUT_BYTES", 10)
    assert await printed_key((sys.executable, "-c", "print('x' * 100_000)")) == "x" * 10


async def test_a_command_reads_no_terminal() -> None:
    assert await printed_key(shell("cat; tty > /dev/null || echo none")) == "none"


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (shell("exit 3"), "exit code 3"),
        (shell("echo"), "printed nothing"),
        (("/nonexistent/program",), "cannot be run"),
        (("a\0b",), "cannot be run"),
    ],
)
async def test_a_command_that_gives_no_key_says_why(command: tuple[str, ...], words: str) -> None:
    with pytest.raises(KeyCommandError, match=words):
        await printed_key(command)
