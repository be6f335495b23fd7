"""`refold run -q`, and the line that shows on a terminal that a turn is alive."""

from __future__ import annotations

import os
import pty

from refold_server.cli.terminal import CLEAR_LINE
from tests.support.commands import Here, finish, start
from tests.support.daemons import Place

LOOK = {"text": "I look.", "calls": [{"name": "list_files"}]}


def test_the_answer_stands_alone_on_the_output(refold: Here) -> None:
    refold.place.script(LOOK, {"text": "Forty-two."})
    done = refold("run", "-q", "How", "much?")
    assert (done.code, done.out, done.err) == (0, b"Forty-two.\n", "")


def test_a_quiet_run_that_fails_says_why(refold: Here) -> None:
    refold.place.script({"status": 400})
    done = refold("run", "--quiet", "go")
    assert (done.code, done.out) == (4, b"")
    assert "turn " in done.err


def test_quiet_and_json_do_not_go_together(refold: Here) -> None:
    done = refold("run", "-q", "--json", "go")
    assert (done.code, done.out) == (2, b"")
    assert "--quiet: does not go with --json" in done.err


def on_terminal(place: Place, *arguments: str) -> tuple[bytes, str]:
    """What a slow turn prints, and what a terminal gets that is its standard error alone."""
    place.script({"text": "Seen.", "delayMs": 1300})
    controller, end = pty.openpty()
    process = start(place, "run", *arguments, "go", stderr=end)
    os.close(end)
    done = finish(process)
    os.set_blocking(controller, False)
    try:
        told = os.read(controller, 65_536).decode()
    except OSError:  # nothing came, and its other end is closed
        told = ""
    os.close(controller)
    assert done.code == 0
    return done.out, told


def test_a_terminal_shows_that_a_turn_is_alive_in_a_line_that_is_gone_at_its_end(place: Place) -> None:
    out, told = on_terminal(place)
    assert out.startswith(b"Seen.\nsession ")
    assert f"{CLEAR_LINE}… waiting for the model (1 s)" in told
    assert told.rsplit("s)", 1)[1].startswith(CLEAR_LINE)


def test_a_quiet_or_a_programs_run_shows_no_sign_of_life(place: Place) -> None:
    assert on_terminal(place, "-q") == (b"Seen.\n", "")
    assert on_terminal(place, "--json")[1] == ""
