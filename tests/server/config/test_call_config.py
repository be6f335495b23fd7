"""From a configuration and a session's settings to what a request carries."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold_protocol.errors import ConfigError, ProviderError
from refold_protocol.session.events import LimitSettings, SessionSettings
from refold_protocol.session.header import canonical_config
from refold_server.call_config import call_config, resolve_model, split_model, step_limit
from refold_server.config import Config
from refold_server.config_file import build_config, read_toml

DEFAULTS = build_config({}, lambda: Path("/store"))


def _config(text: str) -> Config:
    local = '[providers.local]\ndialect = "chat-completions"\nbase_url = "http://127.0.0.1:8080/v1"\n'
    return build_config(read_toml(f"{text}\n{local}", "c.toml"), lambda: Path("/store"))


def test_a_model_is_split_at_its_first_slash() -> None:
    assert split_model("local/org/model:7b") == ("local", "org/model:7b")


@pytest.mark.parametrize("text", ["", "model", "/model", "provider/", " / "])
def test_a_model_without_one_of_its_parts_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="provider/model"):
        split_model(text)


@given(text=st.text(st.characters()))
def test_a_split_model_can_be_put_together_again(text: str) -> None:
    try:
        provider, model = split_model(text)
    except ConfigError:
        return
    assert f"{provider}/{model}" == text
    assert "/" not in provider


def test_a_model_without_its_provider_says_what_to_write() -> None:
    with pytest.raises(ProviderError) as caught:
        resolve_model(DEFAULTS, "acme/large")
    assert caught.value.error_kind == "model.unconfigured"
    assert caught.value.message == (
        "no provider 'acme' is configured for the model 'acme/large'; "
        "add [providers.acme] with dialect and base_url to the configuration file"
    )
    with pytest.raises(ProviderError, match="did you mean 'local'"):
        resolve_model(_config(""), "locl/x")


def test_the_default_model_works_without_any_configuration() -> None:
    found = call_config(DEFAULTS, SessionSettings())
    assert (found.provider, found.model, found.dialect) == ("rehearsal", "workspace", "chat-completions")
    assert json.loads(found.dialect_options or "{}")["includeUsage"] is True
    assert (found.max_tokens, found.temperature, found.extra) == (None, None, None)


def test_every_setting_that_can_change_a_body_is_in_the_call_config() -> None:
    config = _config(
        'model = "local/a/b"\n[models."local/a/b"]\nmax_output = 9\ntemperature = 0\ntop_p = 1\nstop = ["x"]\n'
        'reasoning_effort = "low"\nextra = {seed = 1}'
    )
    found = call_config(config, SessionSettings())
    assert (found.provider, found.model) == ("local", "a/b")
    assert (found.max_tokens, found.temperature, found.top_p, found.stop) == (9, 0.0, 1.0, ("x",))
    assert (found.reasoning_effort, found.extra) == ("low", '{"seed":1}')
    assert (type(found.temperature), type(found.top_p)) == (float, float)
    assert found == canonical_config(found)


def test_an_empty_stop_list_is_absent() -> None:
    config = _config('model = "local/x"\n[models."local/x"]\nstop = []')
    assert call_config(config, SessionSettings()).stop is None


def test_the_sessions_settings_win() -> None:
    config = _config('model = "local/x"\n[models."local/x"]\nreasoning_effort = "low"\n[models."local/y"]\nmax_output = 7')
    assert call_config(config, SessionSettings(effort="high")).reasoning_effort == "high"
    found = call_config(config, SessionSettings(model="local/y"))
    assert (found.model, found.max_tokens, found.reasoning_effort) == ("y", 7, None)


def test_nothing_of_the_way_to_the_provider_is_in_the_call_config() -> None:
    config = _config("")
    with_way = build_config(
        read_toml(
            '[providers.local]\ndialect = "chat-completions"\nbase_url = "https://elsewhere/v1"\nkey_env = "K"\n'
            'headers = {x-a = "secret"}\n[timeouts]\ntotal_s = 1\n',
            "c.toml",
        ),
        lambda: Path("/other"),
    )
    settings = SessionSettings(model="local/x")
    assert call_config(config, settings) == call_config(with_way, settings)


def test_the_step_limit_is_the_sessions_or_the_configurations() -> None:
    config = _config("limits = {steps = 4}")
    assert step_limit(config, SessionSettings()) == 4
    assert step_limit(config, SessionSettings(limits=LimitSettings())) == 4
    assert step_limit(config, SessionSettings(limits=LimitSettings(steps=2))) == 2
