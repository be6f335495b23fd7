"""`refold sessions`: which sessions are listed, in which order, and what of them fits a terminal."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from refold_protocol.ids import SessionId
from refold_server.cli.terminal import Style
from refold_server.cli.text_tables import MAX_TITLE, columns_of, fitted, session_lines
from refold_server.sessions.session_list import SessionRow
from tests.support.commands import Here

PLAIN = Style(colour=False)
ROW = SessionRow(
    SessionId("018f0000-0000-7000-8000-000000000001"),
    "/work",
    1_700_000_000_000,
    1_700_000_001_000,
    57,
    3,
    "running",
    "Spring cleaning",
    "local/small",
)


def run_in(refold: Here, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    folder.mkdir(exist_ok=True)
    monkeypatch.chdir(folder)
    return refold("run", "Hello").session


@pytest.fixture
def sessions(refold: Here, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str, str]:
    """Two sessions of the workspace, and behind them one of another folder; the workspace is the current folder."""
    refold.place.script(*[{"text": "Hi."}] * 3)
    here = refold.place.workspace
    found = run_in(refold, here, monkeypatch), run_in(refold, here, monkeypatch)
    other = run_in(refold, refold.place.root / "other", monkeypatch)
    monkeypatch.chdir(here)
    return (*found, other)


def listed(refold: Here, *arguments: str) -> list[str]:
    done = refold("sessions", "--json", *arguments)
    assert (done.code, done.err) == (0, "")
    return [row["session"] for row in done.values] if done.out else []


def test_the_sessions_of_the_current_folder_are_listed_latest_first(refold: Here, sessions: tuple[str, str, str]) -> None:
    first, second, _ = sessions
    assert listed(refold) == [second, first]


def test_the_sessions_of_another_folder_and_of_all(
    refold: Here, sessions: tuple[str, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = sessions
    monkeypatch.chdir(refold.place.root)
    assert listed(refold, "--cwd", "other") == [third]
    assert listed(refold, "--cwd", str(refold.place.workspace)) == [second, first]
    assert listed(refold, "--all") == [third, second, first]


def test_a_session_that_was_continued_moves_to_the_top(refold: Here, sessions: tuple[str, str, str]) -> None:
    first, second, _ = sessions
    refold.place.script(*[{"text": "Again."}] * 2)
    assert refold("run", "Again", "--session", first).code == 0
    assert listed(refold) == [first, second]


def test_a_row_for_programs_says_what_is_known(refold: Here, sessions: tuple[str, str, str]) -> None:
    (row,) = refold("sessions", "--json", "--limit", "1").values
    known: dict[str, Any] = {"session": sessions[1], "cwd": str(refold.place.workspace), "turns": 1, "status": "idle"}
    assert known.items() <= row.items()
    assert row["model"] == "rehearsal/workspace"
    assert row["lastActivity"] >= row["createdAt"] > 1_700_000_000_000


def test_the_table_has_a_heading_and_a_line_for_each_session(refold: Here, sessions: tuple[str, str, str]) -> None:
    done = refold("sessions")
    assert (done.code, done.err) == (0, "")
    heading, *lines = done.lines
    assert heading.split() == ["title", "when", "turns", "model", "status", "id"]
    assert [line.split()[-1] for line in lines] == [sessions[1], sessions[0]]
    assert all(re.search(r"  \d{4}-\d\d-\d\d \d\d:\d\d +1  rehearsal/workspace  idle ", line) for line in lines)


def test_what_is_left_out_by_the_limit_is_told_beside_the_table(refold: Here, sessions: tuple[str, str, str]) -> None:
    done = refold("sessions", "--limit", "1")
    assert [line.split()[-1] for line in done.lines[1:]] == [sessions[1]]
    assert done.err == "(there are more; --limit 5 shows some of them)\n"


def test_a_list_of_nothing_says_where_to_look(refold: Here, sessions: tuple[str, str, str]) -> None:
    del sessions
    done = refold("sessions", "--text", "none\x1b[2J")
    assert (done.code, done.out) == (0, b"")
    assert "no sessions with 'none\\x1b[2J' in their title or prompts began in" in done.err
    assert "--all" in done.err


@pytest.mark.parametrize("arguments", [[], ["--all"], ["--json"]])
def test_without_a_store_there_is_nothing_to_list(refold: Here, arguments: list[str]) -> None:
    done = refold("sessions", *arguments)
    assert (done.code, done.out) == (2, b"")
    assert "there is no store in" in done.err


def test_the_sessions_of_a_folder_that_is_gone_are_listed(refold: Here, sessions: tuple[str, str, str]) -> None:
    folder = refold.place.root / "other"
    folder.rmdir()
    assert listed(refold, "--cwd", str(folder)) == [sessions[2]]


def test_a_folder_that_is_none_is_named(refold: Here, sessions: tuple[str, str, str]) -> None:
    del sessions
    done = refold("sessions", "--cwd", "gone")
    assert (done.code, done.out) == (0, b"")
    folder = refold.place.workspace / "gone"
    assert done.err == f"(no sessions began in {folder}, and no such folder is there; --all lists those of every folder)\n"
    assert "no such folder" not in refold("sessions", "--cwd", str(refold.place.root)).err


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 200])
@pytest.mark.parametrize("title", ["x" * 200, "日本語" * 40, "e\u0301" * 150, None])
def test_a_line_fits_the_width_and_has_the_whole_id(width: int, title: str | None) -> None:
    rows = [replace(ROW, title=title), ROW]
    lines = list(session_lines(rows, width, PLAIN))
    assert len(lines) == 3
    for line in lines[1:]:
        assert line.endswith(ROW.session)
    for line in lines:
        assert columns_of(line) <= width


def test_columns_are_left_out_from_the_least_wanted_one() -> None:
    headings = [next(session_lines([ROW], width, PLAIN)).split() for width in (120, 95, 78, 70, 50, 20)]
    assert headings == [
        ["title", "when", "turns", "model", "status", "id"],
        ["title", "when", "turns", "status", "id"],
        ["title", "when", "status", "id"],
        ["title", "status", "id"],
        ["title", "id"],
        ["…", "id"],
    ]


def test_a_title_cannot_steer_the_terminal_nor_break_the_line() -> None:
    _, line = session_lines([replace(ROW, title="a\x1b[2J\nb\u202e", model="m\x1b")], 160, PLAIN)
    assert line.startswith("a\\x1b[2J b\\u202e  ")
    assert "  m\\x1b  " in line


@pytest.mark.parametrize("time", [(1 << 53) - 1, 10**30, 10**400, -(10**18)])
def test_a_time_that_has_no_date_hides_no_session(time: int) -> None:
    _, line, other = session_lines([replace(ROW, last_activity=time), ROW], 160, PLAIN)
    assert line.split()[2] == "-"
    assert other.startswith("Spring cleaning  20")


def test_a_title_is_cut_where_it_would_push_the_rest_away() -> None:
    _, line = session_lines([replace(ROW, title="x" * 200)], 500, PLAIN)
    assert line.startswith("x" * (MAX_TITLE - 1) + "…  2023-11-1")


@pytest.mark.parametrize(
    ("text", "cut"), [("日本語", "日…"), ("abcd", "abcd"), ("abcde", "abc…"), ("e\u0301abcd", "e\u0301ab…")]
)
def test_text_is_cut_by_columns_not_by_letters(text: str, cut: str) -> None:
    assert fitted(text, 4) == cut


def test_no_rows_make_no_table() -> None:
    assert list(session_lines([], 80, PLAIN)) == []


def test_the_output_has_no_colour_where_nobody_looks(refold: Here, sessions: tuple[str, str, str]) -> None:
    del sessions
    assert "\x1b" not in refold("sessions").text
    assert json.loads(refold("sessions", "--json").lines[0])
