"""`refold login`: a key that is kept, used, replaced without a restart, and forgotten; it never shows."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from tests.support.chat_stream import reply
from tests.support.commands import Here
from tests.support.fake_provider import FakeProvider, answer

KEY = "sk-kept-0123456789abcdef"


@pytest.fixture(autouse=True)
def no_keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "keyring", None)


def typed(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))


def test_a_key_is_kept_and_sent_and_forgotten(refold: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeProvider(answer(reply("ok")), answer(reply("ok"))) as server:
        refold.place.provider(server.base_url)
        typed(monkeypatch, f"{KEY}\n")
        done = refold("login", "fake")
        path = Path(done.lines[0].removeprefix("the key of fake is kept in "))
        assert (done.code, path.stat().st_mode & 0o777, KEY in done.text + done.err) == (0, 0o600, False)
        assert refold("run", "hi").code == 0
        assert refold("login", "fake", "--forget").lines == ["the key of fake is forgotten"]
        assert refold("login", "fake", "--forget").lines == ["there was no key of fake"]
        assert refold("run", "hi").code == 0
    assert [one.headers.get("authorization") for one in server.requests] == [f"Bearer {KEY}", None]


def test_doctor_sees_the_login_and_never_its_key(refold: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    refold.place.provider(
        "http://127.0.0.1:9/v1", retry='[providers.x]\ndialect = "chat-completions"\nbase_url = "http://h/v1"'
    )
    typed(monkeypatch, KEY)
    assert refold("login", "fake").code == 0
    done = refold("doctor")
    assert "fake: chat-completions at http://127.0.0.1:9/v1, its key is there" in done.text
    assert KEY not in done.text


@pytest.mark.parametrize("text", ["", "\n", "sk-\u00fc\n"])
def test_what_is_no_key_is_not_kept(refold: Here, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    refold.place.provider("http://127.0.0.1:9/v1")
    typed(monkeypatch, text)
    done = refold("login", "fake")
    assert (done.code, "nothing was kept" in done.err) == (2, True)
    assert not list(refold.place.root.rglob("logins.json"))


def test_a_provider_that_is_not_configured_gets_no_key(refold: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    typed(monkeypatch, KEY)
    done = refold("login", "nobody")
    assert (done.code, "add [providers.nobody]" in done.err) == (2, True)


def test_it_is_said_what_goes_before_a_login(refold: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    refold.place.provider("http://127.0.0.1:9/v1")
    refold.place.config.write_text(refold.place.config.read_text() + 'key_env = "HOUSE_KEY"\n')
    typed(monkeypatch, KEY)
    assert "HOUSE_KEY goes before it" in refold("login", "fake").err
