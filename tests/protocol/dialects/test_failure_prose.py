"""Real messages of servers, each with what it means: what must match, and what must not."""

from __future__ import annotations

import pytest

from refold_protocol.dialects.failure_prose import kind_of_prose, wrong_setting
from refold_protocol.dialects.provider_failures import failure_error, is_failure, kind_of, read_failure
from refold_protocol.errors import ProviderError

OUTPUT = [
    "'max_tokens' or 'max_completion_tokens' is too large: 4096. This model's maximum context length is 4096 tokens and your "
    "request has 900 input tokens (4096 > 4096 - 900).",
    "max_tokens exceeds server limit (2048)",
    "max_tokens (4096) exceeds the model's maximum context length of 4096 tokens",
    "This endpoint's maximum context length is 4096 tokens. However, you requested about 5000 tokens (904 of text input, "
    "4096 in the output). Please reduce the length of either one.",
    "This model's maximum context length is 32768 tokens. However, you requested 33792 tokens (1024 in the messages, 32768 in "
    "the completion). Please reduce the length of the messages or completion.",
    "`max_tokens` must be less than or equal to `8192`, the maximum value for `max_tokens` is less than the `context_window`",
    "Invalid max_tokens value, the valid range of max_tokens is [1, 8192]",
    "max_tokens is too large: 100000. This model supports at most 4096 completion tokens, whereas you provided 100000.",
    "Unable to submit request because it has a maxOutputTokens value of 9000 but the supported range is from 1 to 8193",
    "Range of max_tokens should be [1, 8192]",
    "The maximum tokens you requested exceeds the model limit of 8192.",
    "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 100 `inputs` tokens and 4000",
    "input length and `max_tokens` exceed context limit: 1000 + 200000 > 200000, decrease input length or `max_tokens`",
]
OVERFLOW = [
    "'max_tokens' or 'max_completion_tokens' is too large: 11000. This model's maximum context length is 16384 tokens and your "
    "request has 9000 input tokens (11000 > 16384 - 9000).",
    "This model's maximum context length is 1048565 tokens. However, you requested 1250025 tokens (1250025 in the messages, "
    "0 in the completion). Please reduce the length of the messages or completion.",
    "This model's maximum context length is 4097 tokens. However, you requested 5000 tokens (4000 in the messages, 1000 in the "
    "completion). Please reduce the length of the messages or completion.",
    "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, decrease one of them and try again",
    "prompt is too long: 210000 tokens > 200000 maximum",
    "the request exceeds the available context size. try increasing the context size or enable context shift",
    "Token limit reached",
]
KEY = [
    "API key not valid. Please pass a valid API key.",
    "Incorrect API key provided: xa***23. You can obtain an API key from https://console.x.ai.",
    "Invalid API key",
    "No API key provided",
    "invalid x-api-key",
]
NONE = [
    "Thinking mode does not support this tool_choice",
    "image exceeds the maximum size of 5 MB",
    "number of tools exceeds the limit of 128",
    "Invalid 'tools[0].function.name': string too long. Expected at most 64 characters",
    "model 'm' not found, try pulling it first",
    "temporarily rate-limited upstream. Please retry shortly, or add your own key to accumulate your rate limits",
]


@pytest.mark.parametrize("words", OUTPUT)
def test_an_output_limit_that_is_refused_is_no_full_window_and_names_its_setting(words: str) -> None:
    """The history is healthy: nothing is summed up for it."""
    assert kind_of_prose(words) == "provider.rejected"
    assert "max_output" in error_of({"error": {"message": words, "type": "BadRequestError", "code": 400}}, 400).message


@pytest.mark.parametrize("words", OVERFLOW)
def test_a_full_window_is_one_whatever_is_said_beside(words: str) -> None:
    assert kind_of_prose(words) == "provider.contextOverflow"


@pytest.mark.parametrize("words", KEY)
def test_a_refused_key_is_one_with_the_status_of_a_wrong_request(words: str) -> None:
    assert error_of({"error": {"message": words, "code": 400, "status": "INVALID_ARGUMENT"}}, 400).error_kind == "provider.auth"


@pytest.mark.parametrize("words", NONE)
def test_words_that_tell_nothing_surely_leave_it_to_the_status(words: str) -> None:
    assert kind_of_prose(words) is None


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.", "max_completion_tokens"),
        ("Thinking mode does not support this tool_choice", "options"),
        ("This model does not support the effort parameter", "effort"),
        ("Conversation roles must alternate user/assistant/user/assistant/...", "roles"),
    ],
)
def test_a_refused_setting_is_named(words: str, hint: str) -> None:
    assert hint in (wrong_setting(words) or "")
    assert wrong_setting("no such model") is None


GEMINI_KEY = {
    "error": {
        "code": 400,
        "message": "Bad key.",
        "status": "INVALID_ARGUMENT",
        "details": [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}],
    }
}
GEMINI_WAIT = {"error": {"code": 429, "message": "Quota.", "details": [{"@type": "…RetryInfo", "retryDelay": "34.4s"}]}}
ROUTED = {"error": {"code": 429, "message": "Provider returned error", "metadata": {"raw": "m is rate-limited upstream"}}}


def error_of(payload: object, status: int | None = None) -> ProviderError:
    failure = read_failure(payload)
    assert failure is not None
    return failure_error(failure, status=status)


def test_words_stand_in_many_places() -> None:
    assert error_of(GEMINI_KEY, 400).error_kind == "provider.auth"
    assert error_of(GEMINI_WAIT, 429).retry_after_ms == 34_400
    assert "m is rate-limited upstream" in error_of(ROUTED, 429).message
    xai = error_of({"code": "Client specified an invalid argument", "error": "Incorrect API key provided: xa***"}, 400)
    assert (xai.error_kind, "client specified" in xai.message) == ("provider.auth", True)
    assert "field required" in error_of({"detail": [{"loc": ["body"], "msg": "field required"}]}, 422).message
    assert "no room" in error_of({"base_resp": {"status_code": 1004, "status_msg": "no room"}}).message
    assert "no such" in error_of({"fault": {"faultstring": "no such API"}}, 404).message


@pytest.mark.parametrize(
    ("payload", "failed"),
    [
        ({"code": 0, "message": "Success"}, False),
        ({"code": 200, "message": "ok", "status": "success"}, False),
        ({"message": "still working"}, False),
        ({"type": "ping"}, False),
        ({"code": 1302, "message": "slow down"}, True),
        ({"success": False, "msg": "no"}, True),
        ({"object": "error", "message": "no"}, True),
        ({"type": "error", "message": "no"}, True),
        ({"errors": [{"message": "no"}]}, True),
    ],
)
def test_a_code_of_success_is_no_error(payload: dict[str, object], failed: bool) -> None:
    assert is_failure(payload) is failed


def test_a_lone_half_in_a_code_never_leaves_the_sentence() -> None:
    error = error_of({"error": {"message": "\ud83d", "code": "\ude42" * 500}})
    assert error.message.encode()
    assert len(error.message) < 300
    assert kind_of(read_failure("x") or pytest.fail("no failure")) == "provider.overloaded"
