"""Whatever shape a provider gives its error, it becomes one kind and one short sentence (cases A-05, A-06)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold_protocol.dialects.provider_failures import Failure, failure_error, kind_of_status, read_failure, short
from refold_protocol.errors import KINDS, ProviderError

OPENAI_OVERFLOW = "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens."


def error_of(payload: object, status: int | None = None) -> ProviderError:
    failure = read_failure(payload)
    assert failure is not None
    return failure_error(failure, status=status)


@pytest.mark.parametrize(
    ("payload", "status", "kind"),
    [
        ({"error": {"message": "x", "code": "insufficient_quota"}}, 429, "provider.rejected"),
        ({"error": {"message": "x", "code": "rate_limit_exceeded"}}, None, "provider.rateLimited"),
        ({"error": {"message": "x", "type": "invalid_request_error", "code": "invalid_api_key"}}, 401, "provider.auth"),
        ({"error": {"message": "no key", "type": "invalid_request_error", "code": None}}, 401, "provider.auth"),
        ({"error": {"message": "x", "type": "invalid_request_error"}}, None, "provider.rejected"),
        ({"error": {"message": "x", "type": "overloaded_error"}}, None, "provider.overloaded"),
        ({"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}}, 503, "provider.overloaded"),
        ({"error": {"message": "x", "code": "content_filter"}}, 400, "provider.filtered"),
        ({"error": {"message": OPENAI_OVERFLOW, "code": "context_length_exceeded"}}, 400, "provider.contextOverflow"),
        ({"error": {"message": OPENAI_OVERFLOW}}, 400, "provider.contextOverflow"),
        ({"error": {"message": "prompt is too long: 210000 tokens > 200000"}}, None, "provider.contextOverflow"),
        ({"error": {"message": "mind the context window", "type": "x"}}, 429, "provider.rateLimited"),
        ({"message": "x", "code": 429}, None, "provider.rateLimited"),
        ({"error": {"message": "x", "status": "RESOURCE_EXHAUSTED", "code": 429}}, None, "provider.rateLimited"),
        ([{"error": {"message": "x", "code": 403}}], None, "provider.auth"),
        ({"detail": "Not Found"}, 404, "provider.rejected"),
        ("backend stopped", None, "provider.overloaded"),
    ],
)
def test_words_then_prose_then_status_decide_the_kind(payload: Any, status: int | None, kind: str) -> None:
    assert error_of(payload, status).error_kind == kind


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (302, "provider.rejected"),
        (400, "provider.rejected"),
        (401, "provider.auth"),
        (402, "provider.rejected"),
        (403, "provider.auth"),
        (408, "provider.timeout"),
        (429, "provider.rateLimited"),
        (500, "provider.overloaded"),
        (529, "provider.overloaded"),
    ],
)
def test_a_status_by_itself_has_a_kind(status: int, kind: str) -> None:
    assert kind_of_status(status) == kind


def test_a_full_window_is_told_with_both_numbers() -> None:
    """The answer of llama.cpp's server."""
    payload = {
        "error": {
            "code": 400,
            "message": "the request exceeds the available context size, try increasing it",
            "type": "exceed_context_size_error",
            "n_prompt_tokens": 20010,
            "n_ctx": 8192,
        }
    }
    error = error_of(payload, 400)
    assert (error.error_kind, error.status) == ("provider.contextOverflow", 400)
    assert "20,010 tokens asked, the window holds 8,192" in error.message


@pytest.mark.parametrize(
    "words",
    [
        "This endpoint's maximum context length is 131072 tokens. However, you requested about 200000 tokens",
        "Your input exceeds the context window of this model",
        "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, decrease one of them and try again",
        "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
        "The input token count exceeds the maximum number of tokens allowed 1048576.",
        "prompt token count of 135000 exceeds the limit of 128000",
        "This model's maximum prompt length is 131072 but the request contains 537812 tokens",
        "Invalid request: Your request exceeded model token limit: 262144 (requested: 263208)",
        "Prompt exceeds max length",
        "Range of input length should be [1, 129024]",
        "Input length 131393 exceeds the maximum allowed input length of 131040 tokens.",
        "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens",
        "prompt too long; exceeded max context length by 12 tokens",
        "Please reduce the length of the messages or completion. Current length is 9000 while limit is 8192",
        "the request exceeds the available context size, try increasing it",
    ],
)
def test_a_full_window_is_recognised_in_the_words_of_many_servers(words: str) -> None:
    assert (
        error_of({"error": {"message": words, "type": "invalid_request_error"}}, 400).error_kind == "provider.contextOverflow"
    )
    assert error_of({"error": {"message": words}}).error_kind == "provider.contextOverflow"


@pytest.mark.parametrize(
    ("words", "status", "kind"),
    [
        ("max_tokens is too large: 100000. This model supports at most 16384 completion tokens", 400, "provider.rejected"),
        ("Invalid 'tools[0].function.name': string too long. Expected at most 64 characters", 400, "provider.rejected"),
        ("image exceeds the maximum size of 5 MB", 400, "provider.rejected"),
        ("number of tools exceeds the limit of 128", 400, "provider.rejected"),
        ("max_output_tokens must be less than or equal to 1024", 400, "provider.rejected"),
        ("Request Entity Too Large", 413, "provider.contextOverflow"),
        ("the token count of this key exceeds the limit of its plan", 403, "provider.auth"),
        (
            "Request too large on tokens per minute: Limit 6000, Requested 8000; mind the context limit",
            429,
            "provider.rateLimited",
        ),
        ("the context limit could not be read", 500, "provider.overloaded"),
    ],
)
def test_what_is_too_large_otherwise_is_no_full_window_but_where_the_status_says_so(words: str, status: int, kind: str) -> None:
    """A history that was summed up for nothing would be the price of a mistake here."""
    assert error_of({"error": {"message": words, "type": "invalid_request_error"}}, status).error_kind == kind


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("model_not_found", "check the model's name, and what the configuration sets for it"),
        ("insufficient_quota", "check the plan and the balance of the account"),
        ("billing_not_active", "check the plan and the balance of the account"),
        ("invalid_api_key", "check the key and what it may do"),
        ("rate_limit_exceeded", "wait before the next try"),
        ("server_error", "try again later"),
        ("context_length_exceeded", "compact the session or choose a model with a larger window"),
        ("content_filter", "rephrase the prompt, or use another model"),
        ("timeout", "try again, or raise the time limits"),
        ("never seen before", "try again later"),
    ],
)
def test_every_error_ends_with_a_hint(word: str, hint: str) -> None:
    assert error_of({"message": "It failed.", "code": word}).message.endswith(f": It failed; {hint}")


@pytest.mark.parametrize("payload", [None, {}, [], "", "  ", 5, {"error": None}, {"choices": []}])
def test_what_tells_of_no_error_is_none(payload: object) -> None:
    assert read_failure(payload) is None


@given(st.text())
def test_a_sentence_is_short_printable_and_on_one_line(message: str) -> None:
    sentence = error_of({"error": {"message": message, "code": "x"}}).message
    assert len(sentence) < 420
    assert sentence.isprintable()


@given(st.text(), st.integers(1, 40))
def test_short_never_exceeds_its_length(text: str, characters: int) -> None:
    assert len(short(text, characters)) <= characters


def test_every_kind_is_one_that_clients_know() -> None:
    assert {error_of({"code": code}).error_kind for code in ("timeout", "content_filter", "api_error")} <= set(KINDS)


def test_a_vague_type_says_less_than_a_status_and_nothing_at_an_address_is_told_as_that() -> None:
    missing = failure_error(Failure('model "m" not found, try pulling it first', ("api_error",)), status=404)
    assert missing.error_kind == "provider.rejected", "it is not asked again"
    assert missing.message.endswith("; check the model's name, and what the configuration sets for it")
    assert failure_error(Failure("at fault", ("api_error",)), status=500).error_kind == "provider.overloaded"
    assert failure_error(Failure("at fault", ("api_error",))).error_kind == "provider.overloaded"
    nothing = failure_error(Failure("404 page not found"), status=404)
    assert nothing.message.endswith("; check base_url and path: the server has nothing at that address")
