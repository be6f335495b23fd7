"""Settings of the dialect are checked when configuration is read, and recorded whole."""

from __future__ import annotations

from typing import Any

import pytest

from refold_protocol.dialects.chat_completions import Options, check_extra, extra_members, read_options, resolve_options
from refold_protocol.errors import ConfigError
from refold_protocol.json_text import JsonText

FIRST = '{"maxTokensField":"max_tokens","toolOnlyContent":"null","includeUsage":true}'
"""What the first release recorded."""


def test_a_new_session_asks_for_what_the_strictest_server_takes() -> None:
    assert (
        resolve_options({})
        == FIRST[:-1] + ',"roles":"in-turn","callIds":"nine","toolNames":"safe","reasoningTags":"head","textCalls":"whole"}'
    )


def test_a_recorded_text_without_the_later_fields_means_what_was_done_then() -> None:
    assert read_options(JsonText(FIRST)) == read_options(None) == Options()
    assert not Options().in_turn
    asked: dict[str, object] = {"roles": "as-they-come", "call_ids": "as-given", "tool_names": "as-given", "stream": True}
    asked |= {"reasoning_tags": "off", "reasoning_history": "omit", "text_calls": "off"}
    assert resolve_options(asked) == FIRST


def test_keys_may_be_spelled_as_in_toml_or_as_in_json() -> None:
    toml = resolve_options({"tool_only_content": "absent", "max_tokens_field": "max_completion_tokens"})
    assert toml == resolve_options({"maxTokensField": "max_completion_tokens", "toolOnlyContent": "absent"})


@pytest.mark.parametrize(
    ("settings", "word"),
    [({"tool_only": "null"}, "toolOnly"), ({"tool_only_content": "nil"}, "nil"), ({"include_usage": 1}, "includeUsage")],
)
def test_unknown_keys_and_wrong_values_are_refused_by_name(settings: dict[str, object], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        resolve_options(settings)


def test_options_are_read_as_they_were_written() -> None:
    strict: dict[str, Any] = {"roles": "in-turn", "call_ids": "nine", "tool_names": "safe"}
    wanted = Options(include_usage=False, **strict, reasoning_tags="head", text_calls="whole")
    assert read_options(resolve_options({"include_usage": False})) == wanted
    assert read_options(resolve_options({"stream": False})).stream is False


def test_recorded_options_that_this_release_does_not_know_are_refused() -> None:
    with pytest.raises(ConfigError, match="thinking"):
        read_options(JsonText('{"thinking":true}'))


@pytest.mark.parametrize("name", ["messages", "model", "stream", "tools"])
def test_an_extra_may_not_redefine_what_only_the_encoder_writes(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        check_extra(f'{{"seed":1,"{name}":1}}')


@pytest.mark.parametrize("text", ["", "[]", "5", "{", '{"a":1,"a":2}', '{"n":NaN}'])
def test_an_extra_that_is_no_strict_object_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="extra"):
        check_extra(text)


@pytest.mark.parametrize(
    ("text", "members"), [(" { } ", b""), ('{"a":1}', b'"a":1'), (' { "a" : {} , "b":1.0}\n', b'"a" : {} , "b":1.0')]
)
def test_the_members_of_an_extra_keep_their_text(text: str, members: bytes) -> None:
    assert extra_members(check_extra(text))[1] == members
