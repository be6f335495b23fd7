"""The tree of settings, one by one, and that no text at all gets past it in another way than a ConfigError."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from refold_protocol.errors import ConfigError
from refold_server.config import Config, Setting, settings_of
from refold_server.config_faults import Key, Origin, described, expected, key_text
from refold_server.config_file import build_config, read_table, read_toml


def _settings(table: type[Struct], prefix: Key = ()) -> Iterator[tuple[Key, Setting]]:
    for name, setting in settings_of(table).items():
        key = (*prefix, name) if setting.names is None else (*prefix, name, EXAMPLES[setting.names.shown])
        if setting.table is None:
            yield key, setting
        else:
            yield from _settings(setting.table, key)


EXAMPLES = {"NAME": "local", "PROVIDER/MODEL": "local/x", "HEADER": "x-one"}
SETTINGS = dict(_settings(Config))
HERE = Origin("client", "here")

every_setting = pytest.mark.parametrize("key", SETTINGS, ids=key_text)


def _read(key: Key, value: Any) -> Any:
    table = value
    for part in reversed(key):
        table = {part: table}
    return read_table(table, HERE)[key].value


def _refused(key: Key, value: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        _read(key, value)
    assert caught.value.key == key_text(key)
    return caught.value.reason


@every_setting
def test_every_setting_says_what_it_takes_and_what_it_is_for(key: Key) -> None:
    setting = SETTINGS[key]
    assert expected(setting)
    assert setting.description
    assert not setting.description.endswith(".")


@every_setting
def test_every_setting_refuses_a_table_with_a_sentence_that_names_it(key: Key) -> None:
    """The two that take any table are checked by their dialect."""
    if key[-1] not in ("extra", "options"):
        assert f"expects {expected(SETTINGS[key])}" in _refused(key, {"surely": "not"})


@every_setting
def test_every_default_is_a_value_that_the_setting_takes(key: Key) -> None:
    default = SETTINGS[key].default
    if default not in (None, "", ()):
        assert _read(key, default) == default


def test_every_field_of_the_tree_is_a_setting_or_filled_in_by_refold() -> None:
    tables = [Config, *(setting.table for setting in settings_of(Config).values() if setting.table is not None)]
    filled_in = {f"{one.__name__}.{name}" for one in tables for name in set(one.__struct_fields__) - set(settings_of(one))}
    assert filled_in == {
        "ProviderConfig.name",
        "ModelConfig.name",
        "ToolsConfig.enabled_written",
        "PluginsConfig.paths_written",
        "PluginsConfig.entry_points_written",
    }


PROVIDER = ("providers", "local")
MODEL = ("models", "local/x")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (("limits", "steps"), True),
        (("limits", "steps"), 1.0),
        (("limits", "steps"), 10**400),
        ((*MODEL, "temperature"), True),
        ((*MODEL, "temperature"), float("nan")),
        ((*MODEL, "temperature"), 10**400),
        ((*MODEL, "temperature"), "1"),
        (("retry", "attempts"), True),
        (("retry", "attempts"), 1.0),
        ((*MODEL, "reasoning_effort"), " "),
        ((*MODEL, "reasoning_effort"), "a\nb"),
        ((*MODEL, "reasoning_effort"), "a\n"),
        ((*MODEL, "reasoning_effort"), "\ud800"),
        ((*MODEL, "stop"), ["\ud800"]),
        ((*MODEL, "stop"), ["a", 1]),
        ((*MODEL, "stop"), "abc"),
        ((*MODEL, "extra"), {"a": "\ud800"}),
        ((*MODEL, "extra"), []),
        ((*PROVIDER, "options"), 1),
        ((*PROVIDER, "key_command"), ["a\0b"]),
        ((*PROVIDER, "key_command"), []),
        ((*PROVIDER, "key_env"), "1A"),
        ((*PROVIDER, "key_env"), "A=B"),
        ((*PROVIDER, "key_env"), "A\n"),
        ((*PROVIDER, "headers", "x-one"), "a\r\nx-other: b"),
        ((*PROVIDER, "headers", "x-one"), "\u00e9"),
        ((*PROVIDER, "base_url"), "http://"),
        ((*PROVIDER, "base_url"), "http://[::1/v1"),
        ((*PROVIDER, "base_url"), "http://host:99999/v1"),
        ((*PROVIDER, "base_url"), "http://a host/v1"),
        ((*PROVIDER, "base_url"), "http://host/v1\n"),
        (("store", "path"), "/a\nb"),
        (("store", "path"), 1),
        (("plugins", "paths"), ["/a", "b"]),
    ],
    ids=lambda part: repr(part)[:40],
)
def test_a_value_that_only_looks_right_is_refused(key: Key, value: object) -> None:
    assert _refused(key, value).startswith("expects ")


def test_a_value_is_described_in_the_words_of_the_file() -> None:
    values: list[object] = [True, 1, 0.5, "a", "x" * 100, {}, [], None, pow(10, 50), pow(10, 5000)]
    assert [described(value) for value in values] == [
        "true",
        "1",
        "0.5",
        "'a'",
        "a long string",
        "a table",
        "an array",
        "null",
        "a very long number",
        "a very long number",
    ]


def test_a_name_is_checked_before_what_it_names() -> None:
    with pytest.raises(ConfigError, match="letters, digits"):
        read_table({"providers": {"*": {"dialect": "chat-completions"}}}, HERE)


def test_a_fault_that_a_dialect_or_a_table_finds_is_told_once_and_by_the_whole_key() -> None:
    settings = read_table({"tools": {"enabled": ["x"]}, "plugins": {"entry_points": False}}, HERE)
    with pytest.raises(ConfigError) as caught:
        build_config(settings, lambda: Path("/store"))
    tools = "list_files, read_file, search_text, write_file, edit_file, read_skill, read_result"
    assert caught.value.message == f"tools.enabled: there is no tool 'x'; the tools are {tools} (here)"


def test_keys_are_written_so_that_toml_reads_them() -> None:
    for key in (("a", "b.c"), ("a", 'x"y\\z'), ("a", "\x00\x7f\n"), ("a", "")):
        assert tomllib.loads(f"{key_text(key)} = 1") == {key[0]: {key[1]: 1}}
    assert len(key_text(("x" * 10_000,))) < 120


_WORDS = sorted(
    {part for key in SETTINGS for part in key if part not in EXAMPLES.values()} | {"rehearsal", "local", '"local/x"'}
)
_VALUES = ["1", "0", "-1", "true", "nan", "1e400", '"x"', '"a/b"', "[]", "['a']", "{}", "1979-05-27", "9" * 5000, '"\\u0000"']
_LINE = st.one_of(
    st.builds("[{}]".format, st.lists(st.sampled_from(_WORDS), min_size=1, max_size=3).map(".".join)),
    st.builds(
        "{} = {}".format,
        st.lists(st.sampled_from(_WORDS), min_size=1, max_size=3).map(".".join),
        st.sampled_from(_VALUES),
    ),
    st.text(max_size=15),
)


@given(text=st.lists(_LINE, max_size=6).map("\n".join))
def test_no_text_raises_anything_but_a_config_error(text: str) -> None:
    message = ""
    try:
        build_config(read_toml(text, "c.toml"), lambda: Path("/store"))
    except ConfigError as error:
        message = error.message
    message.encode()
    assert "\n" not in message


_NAMES = st.sampled_from([*_WORDS, "*", "\ud800", "x"])
_ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=3),
    max_leaves=6,
)


@given(options=st.dictionaries(st.sampled_from([*_WORDS, "*", "", "x\n"]), _ANY, max_size=3))
def test_no_options_of_a_client_raise_anything_but_a_config_error(options: dict[str, Any]) -> None:
    message = ""
    try:
        build_config(read_table(options, HERE), lambda: Path("/store"))
    except ConfigError as error:
        message = error.message
    message.encode()
    assert "\n" not in message
