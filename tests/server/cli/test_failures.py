"""What becomes of exceptions that end a command: a sentence for what is foreseen, a traceback and a plea for what is not."""

from __future__ import annotations

import argparse

import pytest

from refold_protocol.errors import ConfigError
from refold_server.cli import cli_log
from refold_server.cli.exit_codes import first_error, report_error
from tests.support.commands import Here


def test_a_bug_shows_its_traceback_and_a_sentence_that_asks_to_report_it(refold: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(options: argparse.Namespace) -> int:
        raise ExceptionGroup("tasks", [ZeroDivisionError("by \x1b[2J")])

    monkeypatch.setattr(cli_log, "run", broken)
    done = refold("log", "s")
    assert (done.code, done.out) == (1, b"")
    assert "Traceback (most recent call last):\n" in done.err
    assert "in broken\n" in done.err
    assert "\x1b" not in done.err
    last = done.err.rstrip("\n").split("\n")[-1]
    assert last == "refold: invariant: a bug in refold, please report it with the lines above: ZeroDivisionError: by \\x1b[2J"


def test_an_interrupt_before_anything_was_begun_is_no_bug(refold: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(options: argparse.Namespace) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli_log, "run", interrupted)
    assert refold("log", "s").code == 6


def test_the_first_error_of_a_group_speaks_for_all(capfd: pytest.CaptureFixture[str]) -> None:
    nested = ExceptionGroup("outer", [ExceptionGroup("inner", [ConfigError("model", "is\x07 wrong"), ValueError()])])
    assert isinstance(first_error(nested), ConfigError)
    assert report_error(nested) == 2
    assert capfd.readouterr().err == "refold: config.invalid: model: is\\x07 wrong\n"
