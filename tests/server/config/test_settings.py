"""Settings one by one: what each takes, and how a wrong one is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from refold_protocol.errors import ConfigError
from refold_server.config import Config, ModelConfig, StoreConfig, TimeoutsConfig
from refold_server.config_file import Origin, build_config, read_table, read_toml

LOCAL = '[providers.local]\ndialect = "chat-completions"\nbase_url = "http://127.0.0.1:8080/v1"\n'


def _config(text: str) -> Config:
    return build_config(read_toml(text, "c.toml"), lambda: Path("/store"))


def _fault(text: str) -> tuple[str, int | None, str]:
    """Give the key, the line and the message of a wrong configuration."""
    with pytest.raises(ConfigError) as caught:
        _config(text)
    assert caught.value.details["file"] == "c.toml"
    message = caught.value.message
    assert message.startswith(f"{caught.value.key}: ")
    return caught.value.key, caught.value.details.get("line"), message


def test_everything_that_can_be_set_is_read() -> None:
    config = _config(
        """
        model = "local/qwen/7b"
        store = {path = "/s", map_bytes = 1048576, max_bytes = 2097152}
        limits.steps = 3
        tools.enabled = ["read_file"]
        timeouts = {connect_s = 1, first_output_s = 2.5, progress_s = 3, total_s = 4}
        log.level = "debug"

        [providers.local]
        dialect = "chat-completions"
        base_url = "http://127.0.0.1:8080/v1/"
        key_env = "LOCAL_KEY"
        headers = {x-one = "1", X-Two = "2"}
        options = {max_tokens_field = "max_completion_tokens"}

        [providers.other]
        dialect = "chat-completions"
        base_url = "https://models.example/v1"
        key_command = ["pass", "show", "key"]

        [models."local/qwen/7b"]
        context_window = 1000
        max_output = 100
        chars_per_token = 3
        density = "script"
        temperature = 1
        top_p = 1
        stop = ["END"]
        reasoning_effort = "low"
        options = {include_usage = false}
        extra = {seed = 1, nested = {deep = [true, 0.5]}}
        """
    )
    rehearsal, local, other = config.providers
    assert rehearsal.name == "rehearsal"
    assert (local.base_url, local.key_env, local.headers) == (
        "http://127.0.0.1:8080/v1",
        "LOCAL_KEY",
        (("x-one", "1"), ("X-Two", "2")),
    )
    assert json.loads(local.options)["maxTokensField"] == "max_completion_tokens"
    assert json.loads(other.options)["maxTokensField"] == "max_tokens", "defaults are filled in"
    assert other.key_command == ("pass", "show", "key")
    assert config.models == (
        ModelConfig(
            "local/qwen/7b",
            1000,
            100,
            3.0,
            "script",
            1.0,
            1.0,
            ("END",),
            "low",
            config.models[0].options,
            config.models[0].extra,
        ),
    )
    assert json.loads(config.models[0].options or "{}")["includeUsage"] is False
    assert config.models[0].extra == '{"seed":1,"nested":{"deep":[true,0.5]}}'
    assert type(config.models[0].temperature) is float
    assert config.store == StoreConfig(Path("/s"), 1 << 20, 2 << 20)
    assert config.limits.steps == 3
    assert config.tools.enabled == ("read_file",)
    assert config.timeouts == TimeoutsConfig(1.0, 2.5, 3.0, 4.0)
    assert (config.log.level, config.model) == ("debug", "local/qwen/7b")


@pytest.mark.parametrize(
    ("text", "key", "line", "said"),
    [
        ('modle = "x/y"', "modle", 1, "did you mean 'model'"),
        ("[limit]\nsteps = 1", "limit", 1, "did you mean 'limits'"),
        ("[limits]\nstep = 1", "limits.step", 2, "did you mean 'steps'"),
        ("[limits]\nqqqq = 1", "limits.qqqq", 2, "here stand: steps"),
        ("model = 1", "model", 1, 'expects "provider/model"; it is 1'),
        ('model = "x"', "model", 1, "expects \"provider/model\"; it is 'x'"),
        ('model = "/x"', "model", 1, 'expects "provider/model"'),
        ("store = 1", "store", 1, "expects a table; it is 1"),
        ('[store]\npath = "logs"', "store.path", 2, "expects an absolute path"),
        ('[store]\npath = "~nobody-here/x"', "store.path", 2, "expects an absolute path"),
        ("[store]\nmap_bytes = true", "store.map_bytes", 2, "it is true"),
        ("[store]\nmap_bytes = 1", "store.map_bytes", 2, "a whole number of bytes from 1048576 (1 MiB)"),
        ("[store]\nmap_bytes = 2097152\nmax_bytes = 1048576", "store.map_bytes", 2, "expects at most store.max_bytes"),
        ("[providers.a]", "providers.a", 1, "holds no settings"),
        ('[providers.a]\ndialect = "chat-completions"', "providers.a", 1, "needs base_url"),
        ('[providers.a]\nbase_url = "http://h/v1"', "providers.a", 1, "needs dialect"),
        (LOCAL.replace("local", '"a/b"'), 'providers."a/b"', 1, "letters, digits"),
        (LOCAL.replace("local", "rehearsal"), "providers.rehearsal", 1, "name of the embedded provider"),
        (LOCAL.replace("chat-", "chats-"), "providers.local.dialect", 2, "did you mean 'chat-completions'"),
        (LOCAL.replace("http:", "ftp:"), "providers.local.base_url", 3, "http or https"),
        (LOCAL.replace("127.0.0.1:8080", ""), "providers.local.base_url", 3, "http or https"),
        (LOCAL.replace(":8080", ":port"), "providers.local.base_url", 3, "http or https"),
        (LOCAL.replace("/v1", "/v1?key=1"), "providers.local.base_url", 3, "leave out user names, queries"),
        (LOCAL.replace("/v1", "/v1/chat/completions/"), "providers.local.base_url", 3, "leave out /chat/completions"),
        (LOCAL.replace("127", "me:pw@127"), "providers.local.base_url", 3, "leave out user names, queries"),
        (LOCAL + "options = {x = 1}", "providers.local.options", 4, "unknown field `x`"),
        (LOCAL + 'options = {include_usage = "yes"}', "providers.local.options", 4, "includeUsage"),
        (LOCAL + 'headers = {"a b" = "c"}', 'providers.local.headers."a b"', 4, "HTTP header"),
        (LOCAL + "key_command = []", "providers.local.key_command", 4, "a program and its arguments"),
        (LOCAL + 'key_command = "pass"', "providers.local.key_command", 4, "an array"),
        (LOCAL + 'key_env = "K"\nkey_command = ["a"]', "providers.local.key_command", 5, "keep one of them"),
        ("[models.x]\nmax_output = 1", "models.x", 1, 'named "provider/model"'),
        ('[models."loca/x"]\nmax_output = 1\n' + LOCAL, 'models."loca/x"', 1, "did you mean 'local'"),
        (LOCAL + '[models."local/x"]\ncontext_window = 10\nmax_output = 10', 'models."local/x".max_output', 6, "less than"),
        (LOCAL + '[models."local/x"]\ntop_p = 0', 'models."local/x".top_p', 5, "above 0"),
        (LOCAL + '[models."local/x"]\ntemperature = nan', 'models."local/x".temperature', 5, "it is nan"),
        (LOCAL + '[models."local/x"]\nstop = ["a", ""]', 'models."local/x".stop', 5, "none of them empty"),
        (LOCAL + '[models."local/x".extra]\nmodel = "y"', 'models."local/x".extra', 4, "may not set 'model'"),
        (LOCAL + '[models."local/x".extra]\nday = 2020-01-01', 'models."local/x".extra', 4, "as JSON"),
        (LOCAL + '[models."local/x".extra]\nn = inf', 'models."local/x".extra', 4, "as JSON"),
        (
            'tools = {enabled = ["red_file"]}\nplugins.entry_points = false',
            "tools.enabled",
            1,
            "did you mean 'read_file'",
        ),
        ('[plugins]\npaths = ["p.py"]', "plugins.paths", 2, "expects an array of absolute paths"),
        ('[plugins]\npaths = ["~nobody-here/p.py"]', "plugins.paths", 2, "expects an array of absolute paths"),
        ('[plugins]\npaths = "/p.py"', "plugins.paths", 2, "an array of absolute paths"),
        ('[plugins]\npaths = ["/p\\u0000.py"]', "plugins.paths", 2, "an array of absolute paths"),
        ("[plugins]\nentry_points = 0", "plugins.entry_points", 2, "true or false; it is 0"),
        ("[limits]\nsteps = 0", "limits.steps", 2, "a whole number from 1 to 100000; it is 0"),
        ("[timeouts]\nconnect_s = -1", "timeouts.connect_s", 2, "above 0 and at most 86400; it is -1"),
        ("[timeouts]\ntotal_s = inf", "timeouts.total_s", 2, "it is inf"),
        ('[log]\nlevel = "warn"', "log.level", 2, "did you mean 'warning'"),
        ('[log]\nlevel = "INFO"', "log.level", 2, "did you mean 'info'"),
    ],
)
def test_a_wrong_setting_is_told_by_key_line_and_reason(text: str, key: str, line: int, said: str) -> None:
    told_key, told_line, message = _fault(text)
    assert (told_key, told_line) == (key, line)
    assert said in message


@pytest.mark.parametrize("address", ["HTTP://h/v1", "https://h:8/@team/v1", "http://[::1]:8080/v1"])
def test_an_address_is_taken_in_every_form_that_holds_no_secret(address: str) -> None:
    assert _config(LOCAL.replace("http://127.0.0.1:8080/v1", f"{address}/")).providers[1].base_url == address


@pytest.mark.parametrize(
    "text",
    [
        LOCAL + 'key_env = "sk-secret-1"',
        LOCAL + 'key_command = ["sk-secret-1", 1]',
        LOCAL + 'key_command = "sk-secret-1"',
        LOCAL + 'headers = {authorization = "sk-secret-1 é"}',
        LOCAL + 'headers = "sk-secret-1"',
        LOCAL + 'options = "sk-secret-1"',
        LOCAL + 'api_key = "sk-secret-1"',
        LOCAL + '[models."local/x"]\nextra = "sk-secret-1"',
        LOCAL.replace("chat-completions", "sk-secret-1"),
        LOCAL.replace("http://127.0.0.1:8080/v1", "sk-secret-1"),
        LOCAL.replace("127", "me:sk-secret-1@[127"),
        'providers.local = "sk-secret-1"',
        'providers = "sk-secret-1"',
    ],
)
def test_a_key_that_was_put_in_the_wrong_place_is_not_repeated(text: str) -> None:
    assert "secret" not in _fault(text)[2]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a = ", 1),
        ("model = 'x/y'\n[store\n", 2),
        ("model = 'x/y'\nmodel = 'x/y'", 2),
        ("x = " + "[" * 5000, None),
        ("\n\n\n=", 4),
    ],
)
def test_broken_toml_is_told_with_its_line(text: str, line: int | None) -> None:
    key, told, message = _fault(text)
    assert key == "configuration"
    assert told == line
    assert "TOML" in message or "deep" in message


def test_a_key_that_stands_in_two_tables_is_found_in_its_own() -> None:
    other = LOCAL.replace("local", '"an.other"')
    assert _fault(LOCAL + 'key_env = "K"\n' + other + 'key_env = "1"')[:2] == ('providers."an.other".key_env', 8)
    assert _fault(LOCAL + 'key_env = "1"\n' + other + 'key_env = "K"')[:2] == ("providers.local.key_env", 4)


def test_a_key_that_a_search_finds_twice_has_no_line() -> None:
    assert _fault('[limits]\nsteps = 0\n[log]\nlevel = """\n[limits]\nsteps = 1\n"""')[1] is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[limits]\n[limits]", "not valid TOML: the table 'limits' stands twice (c.toml, line 2)"),
        ("model = 'a/b'\nmodel = 'a/b'", "not valid TOML: a key stands twice (c.toml, line 2)"),
    ],
)
def test_what_stands_twice_is_told_in_plain_words(text: str, said: str) -> None:
    assert said in _fault(text)[2]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("# steps = 1\nlimits = { steps = 0 }", 2),
        ("[ limits ]\n'steps'=0", 2),
        ("limits.steps = 0", 1),
        ("[limits] # steps\nsteps = 0 # too few", 2),
    ],
)
def test_the_line_is_found_in_every_spelling_of_a_key(text: str, line: int) -> None:
    assert _fault(text)[:2] == ("limits.steps", line)


def test_null_from_a_client_is_a_wrong_value() -> None:
    with pytest.raises(ConfigError, match=r"limits.steps: .* it is null \(initializationOptions\)"):
        read_table({"limits": {"steps": None}}, Origin("client", "initializationOptions"))
