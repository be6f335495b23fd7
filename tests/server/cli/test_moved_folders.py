"""Sessions whose folder was moved or renamed: how they are found, and how they go on in its new place."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import Here


@pytest.fixture
def session(refold: Here) -> str:
    """A session of one turn."""
    refold.place.script(*[{"calls": [{"name": "list_files", "arguments": {"path": "."}}]}, {"text": "Seen."}] * 4)
    (refold.place.workspace / "zebra.txt").write_text("asleep\n", encoding="utf-8")
    return refold("run", "Look").session


@pytest.fixture
def new(refold: Here, session: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The place to which the session's folder was renamed; commands run there."""
    del session
    renamed = refold.place.workspace.with_name("renamed")
    refold.place.workspace.rename(renamed)
    monkeypatch.chdir(renamed)
    return renamed


def listed(refold: Here, *options: str) -> list[tuple[str, str]]:
    done = refold("sessions", "--json", *options)
    assert done.code == 0
    return [(row["session"], row["cwd"]) for row in done.values] if done.out else []


def test_sessions_whose_folder_is_gone_are_listed_and_the_empty_list_says_how(refold: Here, session: str, new: Path) -> None:
    assert listed(refold, "--moved") == [(session, str(refold.place.workspace))]
    assert "--moved lists sessions whose folder was moved or renamed" in refold("sessions").err
    new.rename(refold.place.workspace)
    os.chdir(refold.place.workspace)
    assert listed(refold, "--moved") == []
    assert "(no sessions whose folder is not there any more)" in refold("sessions", "--moved").err


def test_a_session_that_is_continued_where_its_folder_is_now_lives_there(refold: Here, session: str, new: Path) -> None:
    done = refold("run", "Look again", "--session", session)
    assert done.code == 0
    assert f"goes on in {new}; there is no {refold.place.workspace} now" in done.err
    result = [event for event in refold.events(session) if event["type"] == "tool/result"][-1]
    assert "zebra.txt" in str(result["data"]["content"])
    assert listed(refold) == [(session, str(new))]
    assert listed(refold, "--moved") == []
    assert refold("verify", session).code == 0


def test_a_session_whose_folder_is_there_stays_in_it_wherever_it_is_continued(
    refold: Here, session: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert refold("run", "Look again", "--session", session).err.count("goes on") == 0
    assert listed(refold, "--all") == [(session, str(refold.place.workspace))]


def test_a_folder_can_be_named_however_it_is_spelt(refold: Here, session: str) -> None:
    other = refold.place.workspace / "other"
    other.mkdir()
    assert "goes on" not in refold("run", "Look", "--session", session, "--cwd", "other/..").err
    assert (
        f"goes on in {other}; it was {refold.place.workspace}" in refold("run", "L", "--session", session, "--cwd", "other").err
    )
    assert listed(refold, "--cwd", "./other/../other/") == [(session, str(other))]
    done = refold("run", "Look", "--session", session, "--cwd", "nowhere")
    assert (done.code, done.out) == (2, b"")
    assert "--cwd: there is no folder" in done.err
    assert listed(refold, "--all") == [(session, str(other))]


def test_a_folder_is_known_by_what_it_is_and_not_by_its_path(
    refold: Here, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another mount of the same folder has another path, also after links were followed."""
    elsewhere = refold.place.root / "mounted"
    elsewhere.mkdir()
    real = os.stat

    def stat(path: str, **options: Any) -> os.stat_result:
        return real(refold.place.workspace if str(path) == str(elsewhere) else path, **options)

    monkeypatch.setattr(os, "stat", stat)
    assert listed(refold, "--cwd", str(elsewhere)) == [(session, str(refold.place.workspace))]
    assert "goes on" not in refold("run", "Look", "--session", session, "--cwd", str(elsewhere)).err


def test_a_new_session_begins_in_the_folder_that_is_named(refold: Here) -> None:
    refold.place.script({"text": "Hi."})
    (refold.place.workspace / "other").mkdir()
    session = refold("run", "Go", "--cwd", "other").session
    assert listed(refold, "--all") == [(session, str(refold.place.workspace / "other"))]


def test_a_fork_lives_in_its_parents_folder_or_in_the_named_or_current_one(
    refold: Here, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, named = refold.place.workspace, refold.place.workspace / "other"
    named.mkdir()
    (first,) = refold("fork", session).lines
    (second,) = refold("fork", session, "--cwd", "other").lines
    renamed = home.with_name("renamed")
    home.rename(renamed)
    monkeypatch.chdir(renamed)
    (third,) = refold("fork", session).lines
    wanted = {session: str(home), first: str(home), second: str(named), third: str(renamed)}
    assert dict(listed(refold, "--all")) == wanted


def test_an_import_lives_in_the_files_folder_or_in_the_named_or_current_one(
    refold: Here, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, file = refold.place.workspace, refold.place.root / "export.jsonl"
    assert refold("export", session, "--output", str(file)).code == 0
    (home / "other").mkdir()
    (first,) = refold("import", "--new-id", str(file)).lines
    (second,) = refold("import", "--new-id", str(file), "--cwd", "other").lines
    renamed = home.with_name("renamed")
    home.rename(renamed)
    monkeypatch.chdir(renamed)
    (third,) = refold("import", "--new-id", str(file)).lines
    wanted = {session: str(home), first: str(home), second: str(home / "other"), third: str(renamed)}
    assert dict(listed(refold, "--all")) == wanted
