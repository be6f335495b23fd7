"""Settings of compaction: what is given for a model goes field by field before what is given for all."""

from __future__ import annotations

from pathlib import Path

import pytest

from refold_protocol.errors import ConfigError
from refold_server.config import CompactionConfig, Config
from refold_server.config_file import build_config, read_toml

LOCAL = '[providers.local]\ndialect = "chat-completions"\nbase_url = "http://127.0.0.1:8080/v1"\n'
MODEL = LOCAL + '[models."local/x"]\ncontext_window = 8192\n'


def read(text: str) -> Config:
    return build_config(read_toml(text, "c.toml"), lambda: Path("/store"))


def test_without_settings_histories_are_compacted_by_themselves() -> None:
    found = read("").compaction_of("local/x")
    assert found == CompactionConfig(0.8, None, "", 8192, 2, True)


def test_a_models_settings_merge_field_by_field_into_those_for_all() -> None:
    config = read(
        "[compaction]\nthreshold_ratio = 0.7\nattempts = 3\n"
        + MODEL
        + '[models."local/x".compaction]\nattempts = 1\nretain_tokens = 100\nauto = false\nsummary_model = "local/y"\n'
    )
    assert config.compaction_of("local/x") == CompactionConfig(0.7, 100, "local/y", 8192, 1, False)
    assert config.compaction_of("local/y") == CompactionConfig(0.7, None, "", 8192, 3, True)


@pytest.mark.parametrize(
    ("text", "key", "line", "said"),
    [
        ("[compaction]\nthreshold_ratio = 1", "compaction.threshold_ratio", 2, "above 0 and at most 0.999; it is 1"),
        ("[compaction]\nthreshold_ratio = 0", "compaction.threshold_ratio", 2, "above 0 and at most 0.999; it is 0"),
        ("[compaction]\nattempts = 0", "compaction.attempts", 2, "from 1 to 10; it is 0"),
        ("[compaction]\nauto = 1", "compaction.auto", 2, "true or false; it is 1"),
        ("[compaction]\nautomatic = true", "compaction.automatic", 2, "did you mean 'auto'"),
        ('[compaction]\nsummary_model = "x"', "compaction.summary_model", 2, 'expects "provider/model"'),
        ('[compaction]\nsummary_model = "far/x"', "compaction.summary_model", 2, "no provider of that name"),
        (
            MODEL + '[models."local/x".compaction]\nretain_tokens = 6553',
            'models."local/x".compaction.retain_tokens',
            7,
            "expects less than 6553, where compaction begins in a window of 8192 tokens; it is 6553 (model local/x)",
        ),
        (
            "[compaction]\nretain_tokens = 7000\n" + MODEL,
            "compaction.retain_tokens",
            2,
            "expects less than 6553",
        ),
        ("[compaction]\nthreshold_ratio = 0.1", "compaction.threshold_ratio", 2, "expects more than 0.16"),
    ],
)
def test_a_wrong_setting_is_told_by_key_line_and_reason(text: str, key: str, line: int, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(text)
    assert caught.value.key == key
    assert caught.value.details["line"] == line
    assert said in caught.value.message


def test_a_tail_is_checked_only_against_windows_that_are_known() -> None:
    config = read("[compaction]\nretain_tokens = 100000\n" + LOCAL + '[models."local/x"]\nmax_output = 10\n')
    assert config.compaction_of("local/x").retain_tokens == 100_000
