"""Streams of a command: a slow reader never stops the loop, a lost output is noticed once, closed streams harm nothing."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from typing import TextIO

import anyio
import pytest

from refold_server.cli.terminal import AsyncOutputStream, OutputLostError, OutputStream, Style, discard_output, style_for
from tests.support.commands import finish, is_full, shell, start, there
from tests.support.daemons import Place

MUCH = b"x" * 1_000_000
"""More than any pipe holds."""


class Pipe:
    """A pipe whose writing end is a text stream, as standard output is."""

    def __init__(self) -> None:
        self.reading, writing = os.pipe()
        self.stream = os.fdopen(writing, "w", encoding="utf-8")

    def close(self) -> None:
        self.close_reading()
        self.stream.close()

    def close_reading(self) -> None:
        if self.reading >= 0:
            os.close(self.reading)
            self.reading = -1


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    """A pipe to somebody who reads when told to."""
    made = Pipe()
    yield made
    made.close()


@pytest.fixture
def full() -> Iterator[TextIO]:
    """A disk without space."""
    with open("/dev/full", "w", encoding="utf-8") as file:
        yield file


@pytest.mark.anyio
async def test_a_reader_that_does_not_read_makes_the_writer_wait_and_nobody_else(pipe: Pipe) -> None:
    outlet, read = AsyncOutputStream(pipe.stream, best_effort=False), b""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(outlet.write, MUCH)
        while not is_full(pipe.reading):  # this loop gets its turns although the writer cannot go on
            await anyio.lowlevel.checkpoint()
        while len(read) < len(MUCH):
            read += await anyio.to_thread.run_sync(os.read, pipe.reading, 65_536)
    assert read == MUCH


@pytest.mark.anyio
async def test_a_writer_that_waits_for_a_reader_can_be_cancelled(pipe: Pipe) -> None:
    outlet = AsyncOutputStream(pipe.stream, best_effort=False)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(outlet.write, MUCH)
        while not is_full(pipe.reading):
            await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    assert os.read(pipe.reading, 1) == b"x"


@pytest.mark.anyio
async def test_a_reader_that_leaves_is_noticed_also_while_the_writer_waits_for_it(pipe: Pipe) -> None:
    outlet = AsyncOutputStream(pipe.stream, best_effort=False)
    lost: list[OutputLostError] = []

    async def write() -> None:
        with pytest.raises(OutputLostError) as caught:
            await outlet.write(MUCH)
        lost.append(caught.value)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(write)
        while not is_full(pipe.reading):
            await anyio.lowlevel.checkpoint()
        pipe.close_reading()
    assert lost[0].reader_left
    await outlet.write(b"more")  # told once; what comes later is lost in silence


@pytest.mark.anyio
async def test_only_the_loss_of_a_vital_stream_is_an_error(pipe: Pipe, full: TextIO) -> None:
    pipe.close_reading()
    await AsyncOutputStream(pipe.stream, best_effort=True).write(b"note")
    await AsyncOutputStream(full, best_effort=True).write(b"note")
    with pytest.raises(OutputLostError, match="cannot be written: No space left on device") as caught:
        await AsyncOutputStream(full, best_effort=False).write(b"out")
    assert not caught.value.reader_left


@pytest.mark.anyio
async def test_a_stream_that_somebody_left_non_blocking_loses_nothing(pipe: Pipe) -> None:
    os.set_blocking(pipe.stream.fileno(), False)
    outlet, read = AsyncOutputStream(pipe.stream, best_effort=False), b""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(outlet.write, MUCH)
        while len(read) < len(MUCH):
            read += await anyio.to_thread.run_sync(os.read, pipe.reading, 65_536)
    assert read == MUCH


@pytest.mark.anyio
async def test_a_writer_that_was_forestalled_writes_later(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    write, refusals = os.write, [BlockingIOError(), BlockingIOError()]

    def forestalled(file: int, data: memoryview) -> int:
        if refusals and file == pipe.stream.fileno():
            raise refusals.pop()
        return write(file, data)

    monkeypatch.setattr(os, "write", forestalled)
    await AsyncOutputStream(pipe.stream, best_effort=False).write(b"late")
    assert os.read(pipe.reading, 100) == b"late"


def test_a_screen_tells_the_loss_of_a_vital_stream(full: TextIO) -> None:
    screen, aside = OutputStream(full), OutputStream(full, best_effort=True)
    aside.put("aside", now=True)
    with pytest.raises(OutputLostError):
        screen.put("out", now=True)
    with pytest.raises(OutputLostError):
        OutputStream(full)
    with pytest.raises(OutputLostError):
        screen.put_bytes(MUCH)
    discard_output(full)  # what its buffer still holds can go somewhere when it is closed
    full.close()
    with pytest.raises(OutputLostError):
        screen.line("closed")
    aside.flush()
    discard_output(full)


def test_a_stream_without_a_descriptor_is_left_alone() -> None:
    discard_output(io.StringIO())


def test_bytes_and_text_come_out_in_the_order_in_which_they_were_put(pipe: Pipe) -> None:
    screen = OutputStream(pipe.stream)
    screen.put("a")
    screen.put_bytes(b"b")
    screen.line("c")
    screen.flush()
    assert os.read(pipe.reading, 100) == b"abc\n"


@pytest.mark.parametrize(
    ("terminal", "environment", "colour"),
    [
        (True, {}, True),
        (False, {}, False),
        (True, {"NO_COLOR": "1"}, False),
        (True, {"NO_COLOR": ""}, True),
        (True, {"TERM": "dumb"}, False),
    ],
)
def test_colours_are_for_terminals_that_want_them(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, environment: dict[str, str], colour: bool
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert style_for(terminal=terminal).colour is colour


def test_a_look_without_colours_leaves_text_as_it_is() -> None:
    for look, text in ((Style(colour=False), "bare"), (Style(colour=True), "")):
        assert [look.dim(text), look.bold(text), look.red(text)] == [text] * 3


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_leaves_in_the_middle_of_a_write_is_noticed(place: Place, unbuffered: str) -> None:
    script = (
        "import sys; from refold_server.cli.terminal import OutputStream; OutputStream(sys.stdout).put_bytes(b'x' * 1_000_000)"
    )
    env = place.env | {"PYTHONUNBUFFERED": unbuffered}
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        while not is_full(process.stdout):
            assert process.poll() is None
        process.stdout.close()
        assert b"OutputLostError" in process.stderr.read()


def test_an_output_that_another_program_left_non_blocking_loses_nothing(place: Place) -> None:
    place.script({"text": "word " * 40_000, "chunk": 100})
    session = there(place, "run", "go").session
    whole = there(place, "log", session, "--view", "events", "--json").out
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    process = start(place, "log", session, "--view", "events", "--json", stdout=writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        while not is_full(pipe):
            assert process.poll() is None
        assert pipe.read() == whole
    assert finish(process).code == 0


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
def test_closed_streams_change_neither_what_a_command_does_nor_the_store(place: Place, closed: str) -> None:
    done = shell(place, f'"$@" {closed}', "run", "Where is the zebra?")
    assert (done.code, done.err.count("Traceback")) == (0, 0)
    checked = there(place, "verify", "--all", "--json")
    assert checked.code == 0
    assert [finding["report"]["equal"] for finding in checked.values] == [4]


@pytest.mark.parametrize("arguments", [["run", "Where is the zebra?"], ["run", "--help"]])
def test_an_encoding_without_arrows_gets_escapes_and_no_traceback(place: Place, arguments: list[str]) -> None:
    env = {"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = there(place, *arguments, env=env)
    assert done.code == 0
    assert (done.out + done.err.encode()).isascii()
    if arguments[1] != "--help":
        assert "\\u2192 list_files {}\n" in done.err
        assert "\\u2502" in there(place, "log", done.session, env=env).text


def test_a_terminal_gets_the_reply_in_order_with_what_stands_beside_it(place: Place) -> None:
    place.script({"text": "Look \x1b[2J", "reasoning": "Hm.", "chunk": 3})
    controller, terminal = pty.openpty()
    done = there(place, "run", "go", stdout=terminal, stderr=terminal, env={"TERM": "xterm"})
    os.close(terminal)
    shown = b""
    try:
        while data := os.read(controller, 65_536):
            shown += data
    except OSError:  # the terminal has no other end any more
        pass
    os.close(controller)
    assert done.code == 0
    lines = shown.replace(b"\r\n", b"\n").split(b"\n")
    assert lines[0].replace(b"\x1b[2m", b"").replace(b"\x1b[0m", b"") == b"Hm."
    assert lines[1] == b"Look \\x1b[2J"
    assert lines[2].startswith(b"session ")
