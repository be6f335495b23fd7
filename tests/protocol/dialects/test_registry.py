"""Dialects are found by the name that a recorded header holds."""

from __future__ import annotations

import json

import pytest

from refold_protocol.dialects.dialect_table import DIALECTS, dialect_named, ships_encoder
from refold_protocol.errors import ConfigError
from refold_protocol.session.events import EncoderId
from tests.support.chat_stream import reply, text_in
from tests.support.requests import request, user


@pytest.mark.parametrize("name", DIALECTS)
def test_every_dialect_encodes_decodes_and_resolves_its_settings(name: str) -> None:
    dialect = dialect_named(name)
    asked = request(user("hello"))
    body = dialect.make_encoder().encode(asked, {})
    assert body.data == dialect.encode(asked, {})
    assert dialect.encoder.name == name
    assert isinstance(json.loads(dialect.resolve_options({})), dict)
    assert dialect.check_extra("{}") == "{}"
    assert dialect.path.startswith("/")


def test_the_chat_completions_row_reads_chat_completions_streams() -> None:
    assert text_in(dialect_named("chat-completions").make_decoder().feed(reply("ok"))) == "ok"


def test_an_unknown_dialect_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="chat-completions"):
        dialect_named("telegraph")


def test_only_the_very_version_of_an_encoder_is_shipped() -> None:
    assert ships_encoder(EncoderId("chat-completions", 1))
    assert not ships_encoder(EncoderId("chat-completions", 2))
    assert not ships_encoder(EncoderId("telegraph", 1))
