"""`refold run`: what it prints for people and for programs, which sessions it goes on with, what it refuses beforehand."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.chat_stream import reply
from tests.support.commands import Here, there
from tests.support.daemons import Place, types
from tests.support.fake_provider import FakeProvider, answer

REPLY = {"text": "Forty-two."}
LOOK = {"text": "I look.", "calls": [{"name": "list_files"}]}


def test_a_person_reads_the_reply_and_the_last_line_names_the_session(refold: Here) -> None:
    refold.place.script(LOOK, REPLY)
    done = refold("run", "How much?")
    assert done.code == 0
    assert done.lines == ["I look.", "Forty-two.", f"session {done.session}"]
    assert done.err == "→ list_files {}\n"


def test_a_program_reads_the_session_first_and_then_the_exact_lines_of_the_turn(refold: Here) -> None:
    refold.place.script(LOOK, REPLY)
    done = refold("run", "How much?", "--json")
    assert (done.code, done.err) == (0, "")
    assert done.values[0] == {"session": done.session}
    stored = refold("log", done.session, "--view", "events", "--json")
    assert done.lines[1:] == stored.lines
    assert [event["seq"] for event in done.values[1:]] == list(range(len(done.lines) - 1))


def test_a_session_goes_on_in_its_own_folder_with_its_own_model(refold: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    first = refold("run", "Where is the zebra?")
    monkeypatch.chdir(refold.place.root)
    second = refold("run", "And the horse?", "--session", first.session, "--json")
    assert (second.code, second.session) == (0, first.session)
    assert [event["type"] for event in second.values[1:3]] == ["instance/start", "input/accepted"]
    assert "animals.txt:1: a horse" in second.text
    assert refold("verify", first.session).code == 0


def test_the_prompt_comes_from_standard_input_where_it_is_a_dash(place: Place) -> None:
    done = there(place, "run", "-", "--json", given="Où est le zèbre?\r\n\n".encode())
    (accepted,) = (event for event in done.values[1:] if event["type"] == "input/accepted")
    assert accepted["data"]["content"] == [{"type": "text", "text": "Où est le zèbre?"}]


def test_a_prompt_that_begins_with_a_dash_stands_behind_two_of_them(refold: Here) -> None:
    refold.place.script(REPLY)
    assert refold("run", "--json", "--", "--how much?").code == 0


@pytest.mark.parametrize("prompt", ["", " ", "\n\t \u3000"])
def test_b03e_a_blank_prompt_is_refused_and_nothing_is_made(refold: Here, prompt: str) -> None:
    done = refold("run", prompt)
    assert (done.code, done.out) == (2, b"")
    assert done.err == "refold: config.invalid: PROMPT: is blank; say what to do\n"
    assert not refold.place.store.exists()


@pytest.mark.parametrize(
    ("given", "complaint"),
    [(b"", "is blank"), (b" \n", "is blank"), (b"a\xff", "standard input is not UTF-8: invalid start byte at byte 1")],
)
def test_a_bad_prompt_from_standard_input_is_refused(place: Place, given: bytes, complaint: str) -> None:
    done = there(place, "run", "-", given=given)
    assert (done.code, done.out) == (2, b"")
    assert done.err.startswith(f"refold: config.invalid: PROMPT: {complaint}")


def test_standard_input_that_cannot_be_read_is_told(place: Place) -> None:
    with (place.root / "write-only").open("wb") as written:
        done = there(place, "run", "-", stdin=written)
    assert done.code == 2
    assert "PROMPT: standard input cannot be read: " in done.err


def test_a_folder_that_is_gone_is_told(refold: Here, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    done = refold("run", "go")
    assert done.code == 2
    assert done.err == "refold: config.invalid: cwd: the current folder is not there any more; go to another one\n"


def test_a_folder_whose_name_is_not_text_is_told(place: Place) -> None:
    folder = bytes(place.root) + b"/bad\xff"
    Path(folder.decode("utf-8", "surrogateescape")).mkdir()
    place.workspace = Path(folder.decode("utf-8", "surrogateescape"))
    done = there(place, "run", "go")
    assert done.code == 2
    assert "cwd: the path of the current folder is not UTF-8" in done.err
    assert not place.store.exists()


@pytest.mark.parametrize(
    ("model", "kind"),
    [("none/x", "model.unconfigured: no provider 'none'"), ("x", "config.invalid: model: expects"), ("", "config.invalid")],
)
def test_a_model_that_is_not_there_is_told_before_a_store_is_made(refold: Here, model: str, kind: str) -> None:
    done = refold("run", "go", "--model", model)
    assert (done.code, done.out) == (2, b"")
    assert done.err.startswith(f"refold: {kind}")
    assert not refold.place.store.exists()


def test_model_effort_permissions_and_title_of_a_session_that_exists_are_changed_and_kept(refold: Here) -> None:
    refold.place.script(*[{"text": "Hi."}] * 3)
    session = refold("run", "go").session
    refold.place.config.write_text(
        refold.place.config.read_text() + '\n[models."rehearsal/other"]\ncontext_window = 9000\n', encoding="utf-8"
    )
    refold("run", "go", "--session", session, "--model", "rehearsal/other")
    options = ("--model", "rehearsal/workspace", "--effort", "high", "--permissions", "deny", "--title", "Named")
    assert refold("run", "go", "--session", session, *options).code == 0
    assert refold("run", "go", "--session", session).code == 0
    settings = [event["data"] for event in refold.events(session) if event["type"] == "session/settings"]
    assert [one.get("model") for one in settings] == ["rehearsal/workspace", "rehearsal/other", "rehearsal/workspace"]
    assert settings[-1] == {"model": "rehearsal/workspace", "effort": "high", "permissions": {"mode": "deny"}}
    (row,) = refold("sessions", "--json").values
    assert (row["title"], row["model"]) == ("Named", "rehearsal/workspace")


def test_a_model_that_is_not_configured_changes_no_session(refold: Here) -> None:
    refold.place.script({"text": "Hi."})
    session = refold("run", "go").session
    before = refold.events(session)
    done = refold("run", "go", "--session", session, "--model", "nowhere/model")
    assert (done.code, done.out) == (2, b"")
    assert "nowhere" in done.err
    assert refold.events(session) == before


def test_a_session_whose_provider_is_configured_no_more_is_told_before_its_turn(refold: Here) -> None:
    refold.place.provider("http://127.0.0.1:9/v1")
    session = refold("run", "go").session
    before = refold.events(session)
    refold.place.configure("")
    done = refold("run", "go on", "--session", session)
    assert (done.code, done.out) == (2, b"")
    assert "model.unconfigured: no provider 'fake'" in done.err
    assert refold.events(session) == before


def test_an_unknown_session_is_told(refold: Here) -> None:
    refold("run", "go")
    done = refold("run", "go", "--session", "none\x1b[2J")
    assert (done.code, done.out) == (2, b"")
    assert done.err == "refold: session.unknown: there is no session none\\x1b[2J\n"


def test_a_missing_key_ends_the_turn_with_three(refold: Here) -> None:
    refold.place.configure(
        'model = "fake/small"\n[providers.fake]\ndialect = "chat-completions"\n'
        'base_url = "http://127.0.0.1:9/v1"\nkey_env = "NO_SUCH_KEY"\n'
    )
    done = refold("run", "go")
    assert done.code == 3
    assert done.lines == [f"session {done.session}"]
    assert "provider.auth: there is no key for the provider fake: the environment variable NO_SUCH_KEY is not set" in done.err


def test_the_limit_of_steps_ends_with_five(refold: Here) -> None:
    refold.place.script(LOOK, LOOK, REPLY, more="[limits]\nsteps = 2\n")
    done = refold("run", "go")
    assert done.code == 5
    assert "turn was stopped at the limit of steps (limits.steps in the configuration" in done.err
    refold.place.script(REPLY)
    assert refold("run", "and now?", "--session", done.session).code == 0


def test_the_limit_of_output_tokens_ends_with_five_and_keeps_the_text(refold: Here) -> None:
    refold.place.script({"text": "Forty-", "calls": [{"name": "list_files"}], "finish": "length"}, REPLY)
    done = refold("run", "go")
    assert (done.code, done.lines[0]) == (5, "Forty-")
    assert "turn was cut off at the limit of output tokens" in done.err
    assert "tool/call" not in types(refold.events(done.session))


def test_a_model_whose_window_nobody_stated_is_named_once_for_a_session(refold: Here) -> None:
    with FakeProvider() as provider:
        provider.play([answer(reply("one")), answer(reply("two"))])
        refold.place.provider(provider.base_url, window=None)
        first = refold("run", "go")
        second = refold("run", "go on", "--session", first.session)
    assert (first.code, second.code) == (0, 0)
    assert 'set context_window under [models."fake/small"]. Until then this session is not metered' in first.err
    assert second.err == ""
