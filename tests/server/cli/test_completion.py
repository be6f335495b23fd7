"""`refold completion`: what bash offers when the script is sourced, and that all scripts know the whole grammar."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from refold_server.cli.cli_completion import SHELLS
from refold_server.cli.cli_log import VIEWS
from refold_server.cli.command_line import build_parser, command_names
from tests.support.commands import REFOLD, Here, places
from tests.support.daemons import WAIT_S
from tests.support.fake_provider import Answer, FakeProvider

DRIVER = r"""
set -u
refold() { "${REAL[@]}" "$@"; }
source <(refold completion bash)
COMP_WORDS=("$@"); COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_shtab_refold
printf '%s\n' ${COMPREPLY[@]+"${COMPREPLY[@]}"}
"""


def offered(refold: Here, *words: str) -> list[str]:
    """Give what bash offers for the last of `words`, with refold as a shell function."""
    real = "REAL=(" + " ".join(f"'{part}'" for part in REFOLD) + ")\n"
    environment = refold.place.env | places(refold.place)
    command = ["bash", "--norc", "-c", real + DRIVER, "bash", "refold", *words]
    done = subprocess.run(
        command, cwd=refold.place.workspace, env=environment, capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


def test_bash_offers_the_commands(refold: Here) -> None:
    assert offered(refold, "") == command_names()
    assert offered(refold, "se") == ["serve", "sessions"]
    assert offered(refold, "--v") == ["--version"]


def test_bash_offers_the_options_of_a_command_and_their_values(refold: Here) -> None:
    assert offered(refold, "log", "--") == ["--help", "--view", "--after", "--follow", "--json", "--store", "--config"]
    assert offered(refold, "log", "--view", "") == list(VIEWS)
    assert offered(refold, "log", "--view", "s") == ["surface"]
    assert offered(refold, "completion", "") == list(SHELLS)
    assert offered(refold, "run", "--model", "") == []
    assert offered(refold, "log", "--config", "ani") == ["animals.txt"]


def test_bash_offers_the_models_that_servers_have_and_expands_nothing(refold: Here) -> None:
    listed = b'{"data":[{"id":"big"},{"id":"$(touch oops)"},{"id":"small"}]}'
    with FakeProvider(*[Answer((listed,), headers=(("content-type", "application/json"),))] * 2, lists=True) as server:
        refold.place.provider(server.base_url)
        assert offered(refold, "run", "--model", "") == ["fake/big", "fake/small"]
        assert offered(refold, "run", "--model", "fake/s") == ["fake/small"]
    assert not (refold.place.workspace / "oops").exists()


def test_bash_offers_session_ids_where_one_is_wanted(refold: Here) -> None:
    refold.place.script({"text": "Hi."})
    session = refold("run", "Hello").session
    assert offered(refold, "log", "") == [session]
    assert offered(refold, "log", "--view", "events", "") == [session]
    assert offered(refold, "run", "--session", session[:5]) == [session]
    assert offered(refold, "rebuild", session, "") == []
    assert offered(refold, "log", "--store", str(refold.place.root / "none"), "") == []


def test_without_a_store_there_are_no_ids_and_no_complaint(refold: Here) -> None:
    assert offered(refold, "log", "") == []


@pytest.mark.parametrize("shell", SHELLS)
def test_each_script_has_every_command_and_every_option(refold: Here, shell: str) -> None:
    script = refold("completion", shell).text
    for parser in build_parser(command_names()).all_parsers():
        assert parser.prog.split()[-1] in script
        for flag in (flag for argument in parser.arguments() for flag in argument.option_strings):
            spelled = f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}"
            assert (spelled if shell == "fish" else flag) in script


@pytest.mark.parametrize(("shell", "load"), [("bash", ["--norc"]), ("zsh", ["-n"]), ("fish", ["--no-config"])])
def test_each_shell_loads_its_script_without_a_complaint(refold: Here, shell: str, load: list[str]) -> None:
    if (program := shutil.which(shell)) is None:
        pytest.skip(f"no {shell} here")
    script = refold.place.root / "script"
    script.write_bytes(refold("completion", shell).out)
    done = subprocess.run([program, *load, script], capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
