"""Where servers tell the window that is in force."""

from __future__ import annotations

import json
from typing import Any

import pytest

from refold_server.providers.told_window import QUESTIONS, ToldWindow, questions_for, window_in

BY_NAME = {question.name: question for question in QUESTIONS}


@pytest.mark.parametrize(
    ("name", "answer", "tokens"),
    [
        ("models", {"data": [{"id": "m", "max_model_len": 8192}]}, 8192),
        ("models", {"data": [{"id": "m", "meta": {"n_ctx": 4096, "n_ctx_train": 32768}}]}, 4096),
        ("models", {"data": [{"id": "other", "max_model_len": 8192}]}, None),
        ("props", {"default_generation_settings": {"n_ctx": 2048}, "total_slots": 4}, 2048),
        ("ps", {"models": [{"model": "m:latest", "context_length": 4096}]}, 4096),
        ("loaded", {"data": [{"id": "m", "loaded_context_length": 4096, "max_context_length": 131072}]}, 4096),
        ("loaded", {"data": [{"id": "m", "max_context_length": 131072}]}, None),
        ("info", {"data": [{"model_name": "m", "model_info": {"max_input_tokens": 16384}}]}, 16384),
        ("ps", {"models": [{"model": "m", "context_length": True}]}, None),
        ("ps", {"models": [7, {"model": "m", "context_length": -1}]}, None),
        ("props", [], None),
    ],
)
def test_a_window_is_read_from_the_answer_that_tells_it(name: str, answer: Any, tokens: int | None) -> None:
    told = window_in(BY_NAME[name], json.dumps(answer).encode(), "m")
    assert told == (None if tokens is None else ToldWindow(tokens, name))


@pytest.mark.parametrize("body", [b"", b"<html>", b"[" * 100_000, b'{"data": {}}', b'"text"'])
@pytest.mark.parametrize("name", BY_NAME)
def test_no_answer_breaks_it(name: str, body: bytes) -> None:
    assert window_in(BY_NAME[name], body, "m") is None


@pytest.mark.parametrize(
    ("address", "near"),
    [
        ("http://127.0.0.1:11434/v1", True),
        ("http://localhost:1234/v1", True),
        ("http://[::1]:8080/v1", True),
        ("http://192.168.1.5:8000/v1", True),
        ("http://box.local/v1", True),
        ("http://workstation:8000/v1", True),
        ("https://api.openai.com/v1", False),
        ("https://8.8.8.8/v1", False),
    ],
)
def test_only_servers_nearby_are_asked_more_than_their_list(address: str, near: bool) -> None:
    assert (len(questions_for(address)) > 1) == near
