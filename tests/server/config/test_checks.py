"""The checks of single values, where TOML and JSON are wider than a setting."""

from __future__ import annotations

from pathlib import Path

import pytest

from refold_protocol.errors import ConfigError
from refold_server import config_checks as checks
from refold_server.config_build import build_config
from refold_server.config_read import Origin, read_table

HERE = Origin("here")


@pytest.mark.parametrize(
    ("check", "value"),
    [
        (checks.whole(0), True),
        (checks.whole(0), 1.0),
        (checks.whole(0), 10**400),
        (checks.number(0, 10), True),
        (checks.number(0, 10), 10**400),
        (checks.number(0, 10), "1"),
        (checks.exactly(1), True),
        (checks.exactly(1), 1.0),
        (checks.exactly(False), 0),
        (checks.text, " "),
        (checks.text, "a\nb"),
        (checks.text, "\ud800"),
        (checks.texts, ["\ud800"]),
        (checks.texts, ["a", 1]),
        (checks.texts, "abc"),
        (checks.program, ["a\0b"]),
        (checks.header_value, "a\r\nx-other: b"),
        (checks.header_value, "é"),
        (checks.url, "http://"),
        (checks.url, "http://[::1/v1"),
        (checks.url, "http://host:99999/v1"),
        (checks.url, "http://a host/v1"),
        (checks.json_table, {"a": "\ud800"}),
        (checks.json_table, []),
        (checks.variable, "1A"),
        (checks.variable, "A=B"),
    ],
    ids=lambda part: repr(part)[:24] if not callable(part) else part.__qualname__.split(".")[0],
)
def test_a_value_that_only_looks_right_is_refused(check: checks.Check, value: object) -> None:
    with pytest.raises(checks.Refused):
        check(value)


def test_a_value_is_described_in_the_words_of_the_file() -> None:
    values: list[object] = [True, 1, 0.5, "a", "x" * 100, {}, [], None, pow(10, 50), pow(10, 5000)]
    assert [checks.described(value) for value in values] == [
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


def test_a_fault_that_a_dialect_or_a_table_finds_is_told_once_and_by_the_whole_key() -> None:
    with pytest.raises(ConfigError) as caught:
        build_config(
            read_table({"tools": {"enabled": ["x"]}, "plugins": {"entry_points": False}}, HERE), lambda: Path("/store")
        )
    tools = "list_files, read_file, search_text, write_file, edit_file, read_skill, read_result"
    assert caught.value.message == f"tools.enabled: there is no tool 'x'; the tools are {tools} (here)"


def test_a_name_that_the_table_uses_for_any_name_is_no_name() -> None:
    with pytest.raises(ConfigError, match="letters, digits"):
        read_table({"providers": {"*": {"dialect": "chat-completions"}}}, HERE)
