"""What is said of configured models and providers, without asking anybody and without giving a key away."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from refold_protocol.json_text import JsonText
from refold_server.config import Config, ModelConfig, ProviderConfig, StoreConfig
from refold_server.sessions.session_reports import ModelRow, model_rows, provider_rows

OPEN = ProviderConfig("open", "chat-completions", JsonText("{}"), "http://127.0.0.1:1/v1")
KEYED = ProviderConfig("keyed", "chat-completions", JsonText("{}"), "http://127.0.0.1:2/v1", key_env="KEY")
ASKED = ProviderConfig("asked", "chat-completions", JsonText("{}"), "http://127.0.0.1:3/v1", key_command=("pass", "show", "x"))


def config(model: str, *models: ModelConfig) -> Config:
    return Config(model, StoreConfig(Path("/s")), (OPEN, KEYED, ASKED), models)


def test_the_default_model_comes_first_and_once() -> None:
    rows = model_rows(config("open/b", ModelConfig("open/a"), ModelConfig("open/b", 1000, 100), ModelConfig("keyed/c")))
    assert [(row.model, row.is_default) for row in rows] == [("open/b", True), ("open/a", False), ("keyed/c", False)]
    assert (rows[0].context_window, rows[0].max_output) == (1000, 100)


def test_a_default_model_without_a_row_is_listed_with_what_is_known() -> None:
    assert model_rows(config("keyed/x")) == (ModelRow("keyed/x", "keyed", "chat-completions", True),)


def test_a_model_of_a_provider_that_is_not_configured_cannot_be_offered() -> None:
    assert [row.model for row in model_rows(config("open/a", ModelConfig("gone/b")))] == ["open/a"]


@pytest.mark.parametrize(("value", "word"), [(None, "missing"), ("", "missing"), (" \n", "missing"), ("sk-secret", "present")])
def test_a_key_is_looked_for_and_never_shown(value: str | None, word: str) -> None:
    env = {} if value is None else {"KEY": value}
    rows = provider_rows(config("open/a"), env)
    assert [(row.provider, row.credentials) for row in rows] == [("open", "none"), ("keyed", word), ("asked", "command")]
    told = msgspec.json.encode(rows)
    assert b"sk-secret" not in told
    assert b"pass" not in told


def test_a_key_that_was_given_to_a_login_is_there() -> None:
    rows = provider_rows(config("open/a"), {}, ("keyed", "open"))
    assert [(row.provider, row.credentials) for row in rows] == [
        ("open", "present"),
        ("keyed", "present"),
        ("asked", "command"),
    ]
