"""What goes with a prompt: standard input that is the command's own, named files, files that the prompt mentions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from refold_protocol.errors import ConfigError
from refold_server.cli.attachments import MAX_BYTES, mentioned_files, named_files, with_attachments
from tests.support.commands import Here
from tests.support.daemons import Place

SAID: Any = {"text": "It sleeps."}


def asked(place: Place, *arguments: str, shell: str = "exec {}", **how: Any) -> tuple[str, str]:
    """Run a prompt in a shell whose standard input is not the command's; give the prompt as it was asked, and what was told."""
    place.script(SAID)
    command = shell.format(f'{sys.executable} -m refold_server run "$@"')
    done = subprocess.run(
        ["bash", "-c", command, "bash", *arguments],
        cwd=place.workspace,
        env=place.daemon_env | {"REFOLD_STORE": str(place.store)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        **how,
    )
    session = done.stdout.rstrip("\n").rsplit(" ", 1)[1]
    shown = place.refold("log", session).stdout
    return shown, done.stderr


def test_what_is_piped_into_the_command_goes_with_the_prompt_and_is_told(place: Place) -> None:
    shown, told = asked(place, "explain", "this", shell="printf 'zebra é' | {}")
    assert "> explain this\n\nStandard input:\n\nzebra é" in shown
    assert "(with Standard input, 8 bytes)" in told


def test_the_input_of_a_shell_loop_stays_the_loop_s(place: Place) -> None:
    shown, told = asked(place, "explain", shell="while read line; do {}; done", input="one\nanother\n")
    assert "Standard input" not in shown + told


def test_a_file_that_is_named_or_mentioned_goes_with_the_prompt(place: Place) -> None:
    (place.workspace / "notes.txt").write_text("remember\n")
    shown, told = asked(place, "--file", "notes.txt", "sum it up", stdin=subprocess.DEVNULL)
    assert "> sum it up\n\nnotes.txt:\n\nremember" in shown
    assert "(with notes.txt, 9 bytes)" in told
    shown, _ = asked(place, "sum up @notes.txt, please", stdin=subprocess.DEVNULL)
    assert "> sum up @notes.txt, please\n\nnotes.txt:\n\nremember" in shown


def test_a_word_that_names_no_file_stays_a_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("a")
    assert mentioned_files("mail me@a.txt or @nobody, and @.") == []
    assert [one.name for one in mentioned_files("@a.txt and (see @a.txt)")] == ["a.txt"]


@pytest.mark.parametrize(
    ("content", "said"), [(b"\xff", "--file: is not UTF-8 text"), (b"a" * (MAX_BYTES + 1), "--file: is longer than 4 MiB")]
)
def test_what_is_no_text_or_too_much_is_refused(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(ConfigError, match=said):
        named_files([str(tmp_path / "file")])


def test_a_file_that_is_not_there_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="gone cannot be read: No such file"):
        named_files([str(tmp_path / "gone")])


def test_a_prompt_alone_is_as_it_was() -> None:
    assert with_attachments("hello", ()) == "hello"


def test_the_latest_session_of_the_folder_is_continued_and_an_id_may_be_shortened(refold: Here) -> None:
    refold.place.script(SAID)
    first = refold("run", "one").session
    refold.place.script(SAID)
    assert refold("run", "--continue", "two").session == first
    refold.place.script(SAID)
    assert refold("run", "--session", "latest", "three").session == first
    assert refold("log", first[:-1]).text.count("It sleeps.") == 3
    refold.place.script(SAID)
    assert refold("run", "four").session != first
    several = refold("log", first[:4])
    assert (several.code, "begins the ids of 2 sessions" in several.err) == (2, True)


def test_the_quiet_answer_is_the_answer_alone(refold: Here) -> None:
    refold.place.script({"calls": [{"name": "list_files", "arguments": {}}]}, SAID)
    done = refold("run", "-q", "does", "it", "sleep?")
    assert (done.text, done.err) == ("It sleeps.\n", "")


def test_without_a_configuration_the_stand_in_says_that_it_is_one(place: Place) -> None:
    command = [sys.executable, "-m", "refold_server", "run", "hello", "--store", str(place.store)]
    done = subprocess.run(command, cwd=place.workspace, env=place.env, capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr.startswith("(no model is configured, so rehearsal/workspace answers")
    assert "config.toml" in done.stderr
