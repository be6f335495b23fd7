"""The table of settings, row by row, and that no text at all gets past it in another way than a ConfigError."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold_protocol.errors import ConfigError
from refold_server import config_types
from refold_server.config_build import build_config
from refold_server.config_read import Origin, key_text, read_table, read_toml
from refold_server.config_table import SETTINGS, Setting
from refold_server.config_types import Config

every_setting = pytest.mark.parametrize("setting", SETTINGS, ids=lambda row: ".".join(row.key))


@every_setting
def test_every_setting_says_what_it_takes_and_what_it_is_for(setting: Setting) -> None:
    assert setting.expects
    assert setting.meaning
    assert not setting.expects.endswith(".")


@every_setting
def test_every_setting_refuses_a_table_with_a_sentence_that_names_it(setting: Setting) -> None:
    """The two that take any table are checked by their dialect."""
    if setting.key[-1] in ("extra", "*") and setting.key[2] != "headers":
        return
    key = tuple("local/x" if part == "*" and setting.key[0] == "models" else part.replace("*", "local") for part in setting.key)
    value: Any = {"surely": "not"}
    for part in reversed(key):
        value = {part: value}
    with pytest.raises(ConfigError) as caught:
        read_table(value, Origin("here"))
    assert caught.value.key == key_text(key)
    assert setting.expects in caught.value.message


@every_setting
def test_every_setting_that_is_acted_on_has_its_field(setting: Setting) -> None:
    if setting.missing is not None:
        return
    section, *names = setting.key
    structs = {
        "store": config_types.StoreConfig,
        "providers": config_types.ProviderConfig,
        "models": config_types.ModelConfig,
        "limits": config_types.LimitsConfig,
        "tools": config_types.ToolsConfig,
        "plugins": config_types.PluginsConfig,
        "timeouts": config_types.TimeoutsConfig,
        "permissions": config_types.PermissionsConfig,
        "prefix": config_types.PrefixConfig,
        "compaction": config_types.CompactionConfig,
        "checks": config_types.ChecksConfig,
        "log": config_types.LogConfig,
    }
    wanted = section if not names else next(name for name in names if name != "*")
    assert wanted in (structs[section] if names else Config).__struct_fields__


_WORDS = sorted({part for row in SETTINGS for part in row.key} | {"rehearsal", "local", '"local/x"'})
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
        build_config(read_table(options, Origin("initializationOptions")), lambda: Path("/store"))
    except ConfigError as error:
        message = error.message
    message.encode()
    assert "\n" not in message
