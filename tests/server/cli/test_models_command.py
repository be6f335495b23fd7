"""`refold models`: what servers have, by the names that `--model` takes; one that does not answer hides no other."""

from __future__ import annotations

import json

import pytest

from tests.support.commands import Here
from tests.support.fake_provider import Answer, FakeProvider

LISTED = Answer(
    (b'{"data":[{"id":"big","context_length":131072},{"id":"small:7b"},{"id":"$(touch x)"}]}',),
    headers=(("content-type", "application/json"),),
)
TABLE = '[providers.{0}]\ndialect = "chat-completions"\nbase_url = "{1}"\n'


def test_models_are_listed_with_their_windows(refold: Here) -> None:
    with FakeProvider(LISTED, lists=True) as server:
        refold.place.provider(server.base_url)
        done = refold("models")
        assert (server.requests[0].method, server.requests[0].path) == ("GET", "/v1/models")
    assert done.code == 0
    assert done.lines == ["model             window", "fake/big         131,072", "fake/small:7b", "fake/$(touch x)"]


def test_a_program_gets_json_and_a_shell_names_that_it_does_not_expand(refold: Here) -> None:
    with FakeProvider(LISTED, LISTED, lists=True) as server:
        refold.place.provider(server.base_url)
        told = refold("models", "--json").values[0]["models"]
        assert told[0] == {"model": "fake/big", "contextWindow": 131072}
        assert refold("models", "--names").lines == ["fake/big", "fake/small:7b"]


def test_a_server_that_refuses_is_told_of_and_the_others_are_listed(refold: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONE_KEY", "sk-one-0123456789")
    refused = Answer((b'{"error":{"message":"bad key sk-one-0123456789"}}',), 401)
    with FakeProvider(refused, lists=True) as one, FakeProvider(LISTED, lists=True) as two:
        tables = TABLE.format("one", one.base_url) + 'key_env = "ONE_KEY"\n' + TABLE.format("two", two.base_url)
        refold.place.configure(tables)
        done = refold("models")
        assert one.requests[0].headers["authorization"] == "Bearer sk-one-0123456789"
    assert done.code == 3
    assert [line.split()[0] for line in done.lines] == ["model", "two/big", "two/small:7b", "two/$(touch"]
    assert "provider.auth: one: " in done.err
    assert "sk-one" not in done.err


def test_a_provider_that_is_not_configured_is_told_with_what_was_meant(refold: Here) -> None:
    refold.place.provider("http://127.0.0.1:9/v1")
    done = refold("models", "fakee")
    assert (done.code, "did you mean 'fake'?" in done.err) == (2, True)


def test_without_a_server_nothing_is_listed(refold: Here) -> None:
    assert json.loads(refold("models", "--json").out) == {"models": []}
    assert refold("models").out == b""
