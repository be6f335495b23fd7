"""Each answer that is no stream becomes one short sentence with a kind (case A-06)."""

from __future__ import annotations

import json
import socket
import ssl

import httpx
import pytest

from refold_protocol.errors import RETRYABLE_KINDS, ProviderError
from refold_server.providers.http_failures import connection_error, not_a_stream, request_id, status_error
from tests.support.asking import NOW, error_of, http_provider
from tests.support.fake_provider import Answer, FakeProvider

HTML = {"content-type": "text/html; charset=utf-8"}
JSON = {"content-type": "application/json"}
SIGN_IN = b"<!doctype html><html><head><title>Sign  in\nhere</title></head><body>" + b"x" * 300_000

LATER = (*JSON.items(), ("retry-after", "2"), ("x-request-id", "r"))

OVERFLOW = {
    "error": {
        "code": 400,
        "message": "request (20010 tokens) exceeds the available context size (8192 tokens), try increasing it",
        "type": "exceed_context_size_error",
        "n_prompt_tokens": 20010,
        "n_ctx": 8192,
    }
}


def error(status: int, body: bytes = b"", **headers: str) -> ProviderError:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return status_error(status, named, body, NOW)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (301, "provider.rejected"),
        (400, "provider.rejected"),
        (401, "provider.auth"),
        (403, "provider.auth"),
        (404, "provider.rejected"),
        (429, "provider.rateLimited"),
        (500, "provider.overloaded"),
        (503, "provider.overloaded"),
        (529, "provider.overloaded"),
    ],
)
def test_every_status_has_a_kind_and_a_sentence_with_it(status: int, kind: str) -> None:
    found = error(status)
    assert (found.error_kind, found.status) == (kind, status)
    assert str(status) in found.message


def test_a_page_of_html_is_told_in_one_line_with_the_status() -> None:
    """A-06a."""
    found = status_error(502, HTML, SIGN_IN, NOW)
    assert found.error_kind in RETRYABLE_KINDS
    assert found.message == "the provider answered 502 (Bad Gateway) with a page of HTML 'Sign in here'; try again later"
    plain = status_error(502, HTML, b"<p>bad<b> day</b></p>", NOW).message
    assert plain == "the provider answered 502 (Bad Gateway) with a page of HTML 'bad day'; try again later"


def test_a_sign_in_page_instead_of_a_stream_says_what_was_expected_and_what_came() -> None:
    """A-06b."""
    found = not_a_stream(200, HTML, SIGN_IN)
    assert found.error_kind == "provider.badStream"
    assert "expected an event stream" in found.message
    assert "text/html ('Sign in here')" in found.message


def test_many_titles_are_looked_at_once() -> None:
    """64 KiB of beginnings, each of which a pattern would follow to the end."""
    assert "'<title" in error(502, b"<title" * 10_000).message
    assert "''" not in error(502, b"<title>" * 9_000).message


def test_a_server_that_writes_no_http_is_told_as_that() -> None:
    broken = connection_error(httpx.RemoteProtocolError("multiple Transfer-Encoding headers"), "h", answered=False)
    assert broken.error_kind == "provider.badStream"
    assert "multiple Transfer-Encoding headers" in broken.message
    gone = connection_error(httpx.RemoteProtocolError("Server disconnected without sending a response."), "h", answered=False)
    assert gone.error_kind == "provider.unreachable"


@pytest.mark.parametrize(
    ("status", "value", "wait"),
    [
        (429, "2", 2000),
        (429, "Mon, 21 Sep 2026 14:13:23 GMT", 3000),
        (503, "1.5", 2000),
        (529, None, None),
        (429, "86400", 86_400_000),
        (429, "soon", None),
        (429, "Mon, 21 Sep 2026 14:13:00 GMT", 0),
    ],
    ids=["A-06d", "A-06e", "A-06f", "A-06g", "A-06h", "A-06i", "past"],
)
def test_when_to_come_back_is_told_where_it_is_known(status: int, value: str | None, wait: int | None) -> None:
    found = error(status) if value is None else error(status, retry_after=value)
    assert found.retry_after_ms == wait


def test_the_providers_words_and_its_name_for_the_request_are_kept() -> None:
    body = json.dumps({"error": {"message": "no model of that name", "type": "invalid_request_error"}}).encode()
    found = error(404, body, x_request_id="req-1")
    assert "no model of that name" in found.message
    assert found.request_id == "req-1"


def test_a_prompt_that_does_not_fit_is_told_with_its_numbers() -> None:
    """llama.cpp's answer."""
    found = error(400, json.dumps(OVERFLOW).encode())
    assert found.error_kind == "provider.contextOverflow"
    assert "20,010 tokens asked, the window holds 8,192" in found.message


def test_a_redirect_is_not_followed_and_its_query_not_quoted() -> None:
    found = error(307, location="https://elsewhere.example/v1?token=abc")
    assert "https://elsewhere.example/v1;" in found.message


def test_of_a_long_body_that_is_no_json_the_beginning_is_quoted() -> None:
    assert 200 < len(error(500, b"y" * 50_000).message) < 300
    assert "disk on fire" in error(500, b"disk on fire").message


@pytest.mark.parametrize("body", [b"[" * 50_000, b"\xff\xfe", b"null", b"{}", b'{"error":{}}'])
def test_no_body_whatsoever_breaks_the_reading(body: bytes) -> None:
    assert error(500, body).error_kind == "provider.overloaded"


def test_a_request_id_is_found_under_each_name_and_cut_to_one_line() -> None:
    assert request_id({"request-id": "a\nb"}) == "a b"
    assert request_id({"cf-ray": "9"}) == "9"
    assert request_id({}) is None


@pytest.mark.anyio
async def test_over_the_wire_the_same_errors_come() -> None:
    answers = [
        Answer((SIGN_IN,), status=502, headers=(("content-type", "text/html"),)),
        Answer((SIGN_IN,), headers=(("content-type", "text/html"),)),
        Answer(
            (b'{"error":{"message":"slow"}}',), status=429, headers=(*JSON.items(), ("retry-after", "2"), ("x-request-id", "r"))
        ),
        Answer((json.dumps(OVERFLOW).encode(),), status=400, headers=tuple(JSON.items()), end="cut"),
        Answer((), status=307, headers=(("location", "http://127.0.0.1:9/v1"),)),
    ]
    with FakeProvider(*answers) as server:
        async with http_provider(server.base_url) as provider:
            found = [await error_of(provider) for _ in answers]
    assert [one.error_kind for one in found] == [
        "provider.overloaded",
        "provider.badStream",
        "provider.rateLimited",
        "provider.contextOverflow",
        "provider.rejected",
    ]
    assert "expected an event stream" in found[1].message
    assert (found[2].retry_after_ms, found[2].request_id, found[2].status) == (2000, "r", 429)
    assert len(server.requests) == len(answers)


@pytest.mark.anyio
async def test_of_an_endless_answer_only_the_beginning_is_read() -> None:
    with FakeProvider(Answer((b"x" * 70_000,), status=500, end="hang")) as server:
        async with http_provider(server.base_url) as provider:
            assert (await error_of(provider)).status == 500


def caused(error: httpx.HTTPError, *causes: BaseException) -> httpx.HTTPError:
    """Give an error with a chain of causes below it, as httpx raises it."""
    above: BaseException = error
    for cause in causes:
        above.__cause__ = cause
        above = cause
    return error


def untrusted() -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_message = "self-signed certificate"
    return error


@pytest.mark.parametrize(
    ("raised", "words"),
    [
        (caused(httpx.ConnectError(""), OSError("all"), ExceptionGroup("", [ConnectionRefusedError()])), "was refused"),
        (caused(httpx.ConnectError(""), socket.gaierror(-2, "unknown")), "cannot be resolved"),
        (caused(httpx.ConnectError(""), untrusted()), "self-signed certificate"),
        (caused(httpx.ConnectError(""), OSError(113, "No route to host")), "No route to host"),
        (httpx.ConnectTimeout(""), "no connection within the time limit"),
        (httpx.ProxyError("503"), "HTTPS_PROXY"),
        (httpx.ReadError(""), "closed the connection without an answer"),
    ],
)
def test_why_a_server_is_unreachable_is_told_with_where_it_is(raised: httpx.HTTPError, words: str) -> None:
    found = connection_error(raised, "models.example:8443", answered=False)
    assert found.error_kind == "provider.unreachable"
    assert words in found.message
    assert "models.example:8443" in found.message
