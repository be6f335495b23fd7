"""Signals and readers that leave: the turn is brought to its end in the log, the session is named, the exit code says it.

A reply waits at a gate of the fake provider, so that a signal arrives where the test wants it.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator

import anyio
import pytest

from refold_protocol.session.event_data import aborted
from refold_protocol.session.events import AbortCause, TurnEnd
from refold_server.cli.command_context import Interrupts
from refold_server.cli.prompted_turn import run_prompt
from refold_server.cli.terminal import AsyncOutputStream
from refold_server.cli.turn_output import TurnPrinter
from tests.support.chat_stream import chunk, text
from tests.support.commands import Done, finish, is_full, shell, start, there
from tests.support.daemons import Json, Place
from tests.support.fake_provider import FakeProvider, Gate, answer
from tests.support.loop_host import Pause, ScriptedHost, ScriptedProvider, says
from tests.support.loops import scripted_session

MUCH = b"".join(text("word " * 200) for _ in range(400))
"""More than any pipe holds."""

WINDOW = '[models."fake/small"]\ncontext_window = 100000\n'


class Waiting:
    """A turn that said "Half a sent" and waits; `process` runs it."""

    def __init__(self, place: Place, provider: FakeProvider, *arguments: str) -> None:
        self.gate = Gate()
        provider.play([answer(text("Half a sent"), self.gate, end="hang")])
        place.provider(provider.base_url, WINDOW)
        self.process = start(place, "run", "go", *arguments, bufsize=0)
        self.gate.reached.wait()

    def read(self, wanted: bytes) -> bytes:
        """Read the output until it has `wanted`."""
        assert self.process.stdout is not None
        read = b""
        while wanted not in read:
            read += os.read(self.process.stdout.fileno(), 65_536)
        return read


@pytest.fixture
def provider() -> Iterator[FakeProvider]:
    """A provider that plays what the test says."""
    with FakeProvider() as played:
        yield played


def events(place: Place, session: str) -> list[Json]:
    return there(place, "log", session, "--view", "events", "--json").values


def stopped_well(place: Place, session: str) -> Json:
    """Check that the turn is closed and its text kept; give the end's reason."""
    ended = events(place, session)
    assert [event["type"] for event in ended[-3:]] == ["assistant/message", "step/end", "turn/end"]
    assert ended[-3]["data"]["interrupted"]
    assert ended[-3]["data"]["content"] == [{"type": "text", "text": "Half a sent"}]
    assert there(place, "verify", session).code == 0
    return ended[-1]["data"]["reason"]


@pytest.mark.parametrize(
    ("number", "cause"),
    [
        (signal.SIGINT, {"kind": "user"}),
        (signal.SIGTERM, {"kind": "disposed", "reason": "SIGTERM"}),
        (signal.SIGHUP, {"kind": "disposed", "reason": "SIGHUP"}),
    ],
)
def test_a_signal_interrupts_the_turn_and_the_text_so_far_is_kept(
    place: Place, provider: FakeProvider, number: signal.Signals, cause: Json
) -> None:
    waiting = Waiting(place, provider)
    before = waiting.read(b"sent")
    waiting.process.send_signal(number)
    done = finish(waiting.process)
    assert done.code == 6
    done = Done(done.code, before + done.out, done.err)
    assert done.lines == ["Half a sent", f"session {done.session}"]
    assert done.err.startswith("turn was stopped ")
    assert stopped_well(place, done.session) == {"kind": "aborted", "cause": cause}


def test_a_program_gets_the_end_of_a_turn_that_a_signal_stopped(place: Place, provider: FakeProvider) -> None:
    waiting = Waiting(place, provider, "--json")
    before = waiting.read(b"Half a sent")
    waiting.process.send_signal(signal.SIGINT)
    done = finish(waiting.process)
    done = Done(done.code, before + done.out, done.err)
    assert (done.code, done.err) == (6, "")
    assert done.values[1:] == events(place, done.session)


def test_a_signal_before_the_turn_began_leaves_nothing(place: Place) -> None:
    process = start(place, "run", "-", stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    _until_handled(process)
    process.send_signal(signal.SIGINT)
    done = finish(process, None)
    assert (done.code, done.out, done.err) == (6, b"", "")
    assert not place.store.exists()


def _until_handled(process: subprocess.Popen[bytes]) -> None:
    """Wait until the process catches SIGINT by a handler that is not the interpreter's first one, and SIGTERM too."""
    wanted = 1 << (signal.SIGTERM - 1)
    while True:
        with open(f"/proc/{process.pid}/status", encoding="ascii") as status:
            caught = next(int(line.split()[1], 16) for line in status if line.startswith("SigCgt:"))
        if caught & wanted:
            return


def test_a_second_signal_leaves_at_once_although_nobody_reads(place: Place, provider: FakeProvider) -> None:
    provider.play([answer(MUCH, Gate(), end="hang")])
    place.provider(provider.base_url, WINDOW)
    process = start(place, "run", "go", "--json", bufsize=0)
    assert process.stdout is not None
    session = Done(0, process.stdout.readline(), "").session
    while not is_full(process.stdout):
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    while events(place, session)[-1]["type"] != "turn/end":  # the turn ends although its output cannot be written
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert process.wait() == 6
    done = finish(process)
    assert done.err.startswith("refold: left at once; what was recorded is kept")
    assert there(place, "verify", session).code == 0


@pytest.mark.parametrize("arguments", [["run", "go"], ["run", "go", "--json"]])
def test_a_turn_whose_reader_left_is_stopped_and_its_session_named_beside(
    place: Place, provider: FakeProvider, arguments: list[str]
) -> None:
    provider.play([answer(MUCH, MUCH, MUCH, Gate(), end="hang")])
    place.provider(provider.base_url, WINDOW)
    done = shell(place, 'set -o pipefail; "$@" | head -c 1 >/dev/null', *arguments)
    assert done.code == 6
    assert "Traceback" not in done.err
    notice = done.err.rstrip("\n").split("\n")[-1]
    assert notice.startswith("refold: nothing takes the output any more; the turn was stopped. It is in session ")
    session = notice.split(" ")[-1]
    reason = events(place, session)[-1]["data"]["reason"]
    assert reason["cause"] == {"kind": "disposed", "reason": "its output was lost"}
    assert there(place, "verify", session).code == 0


def test_a_disk_that_is_full_behind_the_output_is_told_and_the_log_is_whole(place: Place, provider: FakeProvider) -> None:
    provider.play([answer(text("Half a sent"), Gate(), end="hang")])
    place.provider(provider.base_url, WINDOW)
    done = shell(place, '"$@" >/dev/full', "run", "go")
    assert done.code == 1
    told = done.err.rstrip("\n").split("\n")
    assert told[1:] == ["refold: standard output cannot be written: No space left on device"]
    stopped_well(place, told[0].split(" ")[-1])


@pytest.mark.parametrize(
    "command", [["log", "--view", "events", "--json"], ["log"], ["rebuild", "1.1"], ["verify"], ["--help"]]
)
def test_every_command_tells_that_its_output_cannot_be_written(place: Place, command: list[str]) -> None:
    place.script({"text": "Forty-two."})
    session = there(place, "run", "go").session
    arguments = [command[0], *([] if command == ["--help"] else [session]), *command[1:]]
    done = shell(place, '"$@" >/dev/full', *arguments)
    assert (done.code, done.err) == (1, "refold: standard output cannot be written: No space left on device\n")


@pytest.mark.parametrize("command", [["log", "--view", "events", "--json"], ["log", "--view", "events"], ["rebuild", "1.1"]])
def test_a_reader_of_a_log_may_leave_without_a_word(place: Place, command: list[str]) -> None:
    place.script({"text": "word " * 100_000, "chunk": 100})
    session = there(place, "run", "-", given=b"go" * 100_000).session
    done = shell(place, 'set -o pipefail; "$@" | head -c 1', command[0], session, *command[1:])
    assert (done.code, len(done.out), done.err) == (6, 1, "")


def test_a_signal_that_was_ignored_before_stays_ignored(place: Place, provider: FakeProvider) -> None:
    provider.play([answer(text("Forty-"), gate := Gate(), text("two."), chunk({}, "stop"))])
    place.provider(provider.base_url, WINDOW)
    process = start(place, "run", "go", preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    gate.reached.wait()
    process.send_signal(signal.SIGHUP)
    gate.open()
    done = finish(process)
    assert (done.code, done.lines[0]) == (0, "Forty-two.")


def test_handlers_are_given_back_when_no_signal_came() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    with Interrupts().installed():
        assert signal.getsignal(signal.SIGTERM) not in before
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == before


def test_a_signal_behind_the_outcome_changes_nothing() -> None:
    async def work() -> int:
        return 5

    before = signal.getsignal(signal.SIGTERM)
    interrupts = Interrupts()
    try:
        with interrupts.installed():
            assert interrupts.run(work) == 5
            signal.raise_signal(signal.SIGTERM)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN  # the process is about to end anyway
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, before if number != signal.SIGINT else signal.default_int_handler)


class Told(Interrupts):
    """Interrupts that a test brings about without a signal."""

    def tell(self, number: signal.Signals) -> None:
        assert self._handle is not None
        self._handle(number)


@pytest.mark.anyio
async def test_a_process_that_is_told_to_end_does_not_wait_for_its_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("refold_server.cli.prompted_turn.LAST_SECONDS", 0.05)
    reading, writing = os.pipe()
    provider = ScriptedProvider([*says("word " * 40_000)[:-1], Pause()])
    interrupts = Told()
    codes: list[int] = []
    with os.fdopen(reading) as unread, os.fdopen(writing, "w") as out:
        outlet = AsyncOutputStream(out, best_effort=False)
        async with scripted_session(ScriptedHost(provider)) as session:

            async def run() -> None:
                codes.append(await run_prompt(session, "go", TurnPrinter(outlet, outlet), interrupts))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(run)
                while not is_full(unread):
                    await anyio.lowlevel.checkpoint()
                interrupts.tell(signal.SIGTERM)
            last = list(session.session_log.handle.read())[-1]
    assert codes == [6]
    assert last.data == TurnEnd(1, aborted(AbortCause("disposed", "SIGTERM")))
