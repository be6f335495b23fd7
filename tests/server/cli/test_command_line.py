"""Help and grammar: every command says what it does, which defaults hold and what its exit codes mean; mistakes are told."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from refold_server import cli
from refold_server.cli.cli_log import VIEWS
from refold_server.cli.cli_rebuild import request_name
from refold_server.cli.command_line import command_module, command_names, unicode_text
from refold_server.cli.exit_codes import MEANINGS
from tests.support.commands import Here
from tests.support.daemons import WAIT_S

COMMANDS = command_names()
PLACELESS = ("schema", "completion")
"""Commands that need neither a store nor a configuration."""

HEAVY = ("asyncio", "httpx", "lmdb", "pygls", "refold_storage", "shtab")
"""What no help needs."""


def test_the_commands_are_the_modules_named_for_them() -> None:
    assert set(COMMANDS) >= {"serve", "run", "sessions", "log", "rebuild", "cache", "verify", "doctor", "fork", "archive"}
    files = (path.stem for path in Path(cli.__path__[0]).glob("cli_*.py"))
    assert sorted(f"cli_{name}" for name in COMMANDS) == sorted(files)


def test_a_command_is_added_by_one_file(refold: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cli_greet.py").write_text(
        "SUMMARY, DESCRIPTION, EXIT_CODES = 'say hello', 'Say hello to a name.', {0: 'said'}\n"
        "def add_arguments(parser):\n    parser.add_argument('name', metavar='NAME', help='whose')\n"
        "async def run(options):\n    print('hello', options.name, flush=True)\n    return 0\n"
    )
    monkeypatch.setattr(cli, "__path__", [*cli.__path__, str(tmp_path)])
    assert (refold("greet", "you").text, refold("greet", "you").code) == ("hello you\n", 0)
    assert re.search(r"^    greet +say hello$", refold("--help").text, re.MULTILINE)
    assert "exit codes:\n  0  said\n" in refold("greet", "--help").text
    assert " greet" in refold("completion", "bash").text


def test_help_imports_nothing_that_takes_time() -> None:
    script = (
        "import sys; from refold_server.main import main; heavy, *commands = sys.argv[1:]\n"
        "for arguments in (['--help'], ['--version'], *([command, '--help'] for command in commands)):\n"
        "    code, found = main(arguments), [name for name in heavy.split() if name in sys.modules]\n"
        "    if code or found: sys.exit(f'{arguments}: {code}, {found}')"
    )
    command = [sys.executable, "-P", "-c", script, " ".join(HEAVY), *COMMANDS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("exit codes:") == 1 + len(COMMANDS)


def test_the_help_names_every_command_and_every_exit_code(refold: Here) -> None:
    done = refold("--help")
    assert done.code == 0
    for command in COMMANDS:
        assert re.search(rf"^    {command}( |$)", done.text, re.MULTILINE)
    for code, meaning in MEANINGS.items():
        assert f"  {code}  {meaning}\n" in done.text


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_names_its_options_defaults_and_exit_codes(refold: Here, command: str) -> None:
    done = refold(command, "--help")
    assert done.code == 0
    module = command_module(command)
    assert " ".join(module.DESCRIPTION.split()) in " ".join(done.text.split())
    places = (
        "REFOLD_STORE",
        f"--config  {refold.place.root / 'refold' / 'config.toml'}, if it is there\n",
        f"--store   store.path of the configuration, else {refold.place.root / 'refold'}\n",
    )
    assert [text in done.text for text in places] == [command not in PLACELESS] * len(places)
    for code, meaning in module.EXIT_CODES.items():
        assert f"  {code}  {meaning}\n" in done.text
    assert module.EXIT_CODES.keys() <= MEANINGS.keys()


@pytest.mark.parametrize("command", COMMANDS)
def test_every_argument_of_a_command_is_explained(refold: Here, command: str) -> None:
    lines = refold(command, "--help").text.split("\n")
    named = [number for number, line in enumerate(lines) if re.match(r"  (-|[A-Z])", line)]
    assert len(named) >= 2
    for number in named:
        explained = re.match(r"  \S.*?  +\S", lines[number]) or lines[number + 1].startswith(" " * 16)
        assert explained, lines[number]


def test_without_a_command_the_help_is_the_complaint(refold: Here) -> None:
    done = refold()
    assert (done.code, done.out) == (2, b"")
    assert done.err.startswith("usage: refold ")


def test_the_version_is_that_of_the_package(refold: Here) -> None:
    assert re.fullmatch(r"refold \d+\.\d+\.\d+\n", refold("--version").text)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["bogus\x1b[2J"], "invalid choice: 'bogus\\x1b[2J'"),
        (["run"], "one of the arguments PROMPT --pending --withdraw is required"),
        (["log", "a", "b\x1b[2J"], "unrecognized arguments: b\\x1b[2J"),
        (["run", "a", "--sess", "x"], "unrecognized arguments: --sess x"),
        (["run", "-x"], "one of the arguments PROMPT --pending --withdraw is required"),
        (["run", "a\udcff"], "argument PROMPT: 'a\\udcff' is not UTF-8"),
        (["run", "a", "--session", "\udcff"], "argument --session: '\\udcff' is not UTF-8"),
        (["log", "s", "--view", "none"], "invalid choice: 'none'"),
        (["run", "a", "--pending"], "not allowed with"),
        (["run", "--pending", "--withdraw"], "not allowed with"),
        (["log"], "arguments are required: SESSION"),
        (["rebuild", "s"], "arguments are required: TURN.STEP"),
        (["rebuild", "s", "1"], "'1' is not TURN.STEP, for example 1.2"),
        (["rebuild", "s", "compact:x"], "'compact:x' is not compact:SEQ, the number of a compact/start event"),
        (["sessions", "--limit", "0"], "argument --limit: '0' is not a number from 1 on"),
        (["sessions", "--all", "--cwd", "."], "not allowed with"),
        (["completion", "tcsh"], "invalid choice: 'tcsh'"),
        (["verify"], "one of the arguments SESSION --all is required"),
        (["verify", "s", "--all"], "not allowed with"),
    ],
)
def test_a_mistake_is_told_with_the_way_to_the_help(refold: Here, arguments: list[str], complaint: str) -> None:
    done = refold(*arguments)
    assert (done.code, done.out) == (2, b"")
    assert complaint in done.err
    assert re.search(r"\nTry 'refold( \w+)? --help'\.\n$", done.err)
    assert "\x1b" not in done.err
    assert not os.path.exists(refold.place.store)


@pytest.mark.parametrize(("text", "place"), [("1.1", (1, 1)), ("12.345", (12, 345))])
def test_a_step_is_named_by_its_turn_and_its_number(text: str, place: tuple[int, int]) -> None:
    assert request_name(text) == place


@pytest.mark.parametrize(
    "text", ["", "1", "1.", ".1", "0.1", "1.0", "01.1", "-1.1", "1.1.1", "1,1", "١.١", "1.1\n", "1" * 10 + ".1"]
)
def test_what_is_no_step_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"TURN\.STEP"):
        request_name(text)


def test_text_of_any_script_is_text() -> None:
    assert unicode_text("日本語 🙂") == "日本語 🙂"


def test_the_views_are_those_of_the_protocol_that_a_person_asks_for() -> None:
    assert VIEWS == ("transcript", "surface", "events", "header")
