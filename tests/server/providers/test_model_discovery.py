"""A server's list of models is read in each shape that is documented; nothing else is taken for one."""

from __future__ import annotations

import json

import pytest

from refold_protocol.errors import ProviderError
from refold_server.providers.model_discovery import FoundModel, read_models


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        ({"object": "list", "data": [{"id": "gpt-x", "object": "model"}]}, [FoundModel("gpt-x")]),
        ({"data": [{"id": "m", "meta": {"n_ctx": 8192, "n_ctx_train": 32768}}]}, [FoundModel("m", 8192)]),
        ({"data": [{"id": "q", "max_model_len": 4096}]}, [FoundModel("q", 4096)]),
        ({"data": [{"id": "a/b:free", "context_length": 131072}]}, [FoundModel("a/b:free", 131072)]),
        ({"data": [{"id": "g", "context_window": 131072, "active": True}]}, [FoundModel("g", 131072)]),
        ({"data": [{"id": "s", "max_context_length": 32768}]}, [FoundModel("s", 32768)]),
        ([{"id": "t", "context_length": 10}], [FoundModel("t", 10)]),
        ({"models": [{"name": "models/gemini-x"}]}, [FoundModel("gemini-x")]),
        ({"models": [{"name": "n", "model": "n"}], "data": [{"id": "n"}]}, [FoundModel("n")]),
        ({"data": []}, []),
        ({"data": [{"id": "twice"}, {"id": "twice"}, {"id": ""}, {}, "odd", {"id": 3}]}, [FoundModel("twice")]),
        ({"data": [{"id": "w", "context_length": None, "max_model_len": True, "meta": None}]}, [FoundModel("w")]),
    ],
    ids=["openai", "llama.cpp", "vllm", "openrouter", "groq", "mistral", "together", "gemini", "both", "none", "odd", "null"],
)
def test_a_list_is_read_with_the_windows_in_force(answer: object, found: list[FoundModel]) -> None:
    assert list(read_models(json.dumps(answer).encode())) == found


@pytest.mark.parametrize("body", [b"", b"<html>", b'"text"', b'{"data": 3}', b"[" * 100_000, b"\xff"])
def test_what_is_no_list_is_told_of(body: bytes) -> None:
    with pytest.raises(ProviderError, match="check base_url"):
        read_models(body)


def test_a_name_cannot_steer_a_terminal() -> None:
    (model,) = read_models(b'{"data":[{"id":"a\\u001b[2Jb\\nc"}]}')
    assert model.name == "a [2Jb c"
