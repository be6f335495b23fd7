"""What goes wrong around a stream: refused connections, statuses, pages of HTML. Each becomes one ProviderError.

Error objects inside a body are read where those inside a stream are (`provider_failures.py` of the dialects). Knows nothing of
requests and keys; whoever raises these errors takes secrets out of them.

`Retry-After` holds seconds (RFC 9110; fractions occur) or a date. Fractions are rounded up to whole seconds, a date in the
past means now, and what is neither is no statement at all. `retry-after-ms` (OpenAI) goes first where it is a number.
"""

from __future__ import annotations

import math
import re
import socket
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, cast

from refold_protocol.dialects.chat_completions_wire import json_values
from refold_protocol.dialects.provider_failures import Failure, failure_error, kind_of_status, read_failure, short
from refold_protocol.errors import ProviderError

if TYPE_CHECKING:
    import httpx


_NUMBER: Final = re.compile(r"[0-9]{1,10}(?:\.[0-9]{1,20})?")


def retry_after_ms(headers: Mapping[str, str], now: float) -> int | None:
    """Give the milliseconds to wait, or None where the headers (names in lower case) say nothing that can be read.

    `now` is Unix time in seconds; where the answer has a `Date`, that clock is believed instead, since the date in
    `Retry-After` comes from the same one.
    """
    precise = headers.get("retry-after-ms", "").strip()
    if _NUMBER.fullmatch(precise):
        return math.ceil(float(precise))
    value = headers.get("retry-after", "").strip()
    if _NUMBER.fullmatch(value):
        return math.ceil(float(value)) * 1000
    moment = _seconds_of_date(value)
    if moment is None:
        return None
    sent = _seconds_of_date(headers.get("date", ""))
    return max(0, math.ceil(moment - (now if sent is None else sent))) * 1000


def _seconds_of_date(text: str) -> float | None:
    try:
        date: datetime = parsedate_to_datetime(text)
        return (date if date.tzinfo is not None else date.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, OverflowError, IndexError):  # the parser's ways to say that this is no date
        return None


MAX_ERROR_BYTES: Final = 64 * 1024
"""How much of an answer that is no stream is read."""

WORDS_CHARACTERS: Final = 200
"""How much of an answer that nobody can read is quoted."""

_REQUEST_IDS: Final = (
    "x-request-id",
    "request-id",
    "apim-request-id",
    "mistral-correlation-id",
    "x-amzn-requestid",
    "x-amz-request-id",
    "x-correlation-id",
    "cf-ray",
)


def request_id(headers: Mapping[str, str]) -> str | None:
    """Give the provider's name for a request, for reports to it; None where the headers hold none."""
    return next((short(headers[name], 200) for name in _REQUEST_IDS if headers.get(name)), None)


def status_error(status: int, headers: Mapping[str, str], body: bytes, now: float) -> ProviderError:
    """Give the error of an answer whose status is no success. `headers` have names in lower case, `body` is its
    beginning, `now` is Unix time in seconds."""
    wait = retry_after_ms(headers, now)
    name = request_id(headers)
    if 300 <= status < 400:
        target = short(headers.get("location", "nowhere").split("?")[0], 120)
        message = f"the provider answered {status} and points to {target}; refold follows no redirects: correct base_url"
        return ProviderError("provider.rejected", message, status=status, request_id=name)
    failure = None if _is_page(headers, body) else _failure_in(body)
    if failure is not None:
        return failure_error(failure, status=status, retry_after_ms=wait, request_id=name)
    kind = kind_of_status(status)
    sentence = f"the provider answered {status}{_phrase(status)}"
    if words := _words_of(body):
        sentence += f" with {'a page of HTML' if _is_page(headers, body) else 'the words'} {words!r}"
    return ProviderError(kind, f"{sentence}; {_advice(kind, wait)}", status=status, retry_after_ms=wait, request_id=name)


def not_a_stream(status: int, headers: Mapping[str, str], body: bytes) -> ProviderError:
    """Give the error of a successful answer that is no reply: what was expected, and what came."""
    return ProviderError(
        "provider.badStream",
        f"expected an event stream, and the provider sent {short(media_type(headers), 60) or 'an unnamed type'} "
        f"({_words_of(body)!r}); check base_url, and whether something signs you in in between",
        status=status,
        request_id=request_id(headers),
    )


def connection_error(error: httpx.HTTPError, host: str, *, answered: bool) -> ProviderError:
    """Give the error of a connection that failed; `answered` tells that headers of an answer had come."""
    import ssl

    import httpx

    root = _root(error)
    if answered:
        return ProviderError("provider.badStream", "the connection broke in the middle of the provider's answer; try again")
    if isinstance(root, ssl.SSLCertVerificationError):
        why = f"its certificate is not trusted ({root.verify_message})"
        return _unreachable(host, f"{why}; set SSL_CERT_FILE, or the provider's ca_file, if you trust its issuer", lasting=True)
    if isinstance(root, socket.gaierror):
        return _unreachable(host, "the name cannot be resolved; check base_url and the network")
    if isinstance(root, ConnectionRefusedError):
        return _unreachable(host, "the connection was refused; is the server running, and is base_url right?")
    if isinstance(error, httpx.ConnectTimeout | httpx.PoolTimeout):
        return _unreachable(host, "no connection within the time limit; check base_url and the network")
    if isinstance(error, httpx.ProxyError):
        return _unreachable(host, "the proxy did not let it through; check HTTPS_PROXY and NO_PROXY")
    if isinstance(error, httpx.ConnectError):
        return _unreachable(host, f"{short(str(root) or type(root).__name__, 120)}; check base_url and the network")
    if isinstance(error, httpx.RemoteProtocolError) and "without sending" not in str(error):
        why = short(str(root) or str(error), 120)
        message = f"{host} answered in a form that is no HTTP ({why}); look for a gateway that writes its headers twice"
        return ProviderError("provider.badStream", message)
    return ProviderError("provider.unreachable", f"{host} closed the connection without an answer; try again")


def media_type(headers: Mapping[str, str]) -> str:
    """Give the media type of an answer in lower case, without parameters; empty where there is none."""
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def _failure_in(body: bytes) -> Failure | None:
    text = body.decode("utf-8", "replace").strip()
    values = json_values(text)
    if values is None:  # prose is an error message too, as long as it is short
        return Failure(text) if 0 < len(text) <= 300 else None
    return next((found for value in values if (found := read_failure(value)) is not None), None)


def _is_page(headers: Mapping[str, str], body: bytes) -> bool:
    start = body[:400].lstrip().lower()
    return start.startswith((b"<!doctype", b"<html", b"<head")) or (media_type(headers) == "text/html" and start[:1] == b"<")


def _words_of(body: bytes) -> str:
    """Give what a body says that nobody can read: the title of a page, else its beginning without tags."""
    text = body.decode("utf-8", "replace")
    lowered = text.lower()  # of the same length, as far as titles are concerned
    start = lowered.find("<title")
    start = -1 if start < 0 else lowered.find(">", start)
    end = -1 if start < 0 else lowered.find("</title", start)
    return short(text[start + 1 : end] if end >= 0 else _TAG.sub(" ", text), WORDS_CHARACTERS)


_TAG: Final = re.compile(r"<[a-zA-Z/!][^<>]{0,1000}>")


def _advice(kind: str, wait: int | None) -> str:
    if wait is not None:
        return f"it asks to wait {wait // 1000:,} s"
    return {
        "provider.auth": "check the key and what it may do",
        "provider.rateLimited": "wait before the next try",
        "provider.overloaded": "try again later",
        "provider.timeout": "try again",
    }.get(kind, "check base_url and the model's name")


def _phrase(status: int) -> str:
    try:
        return f" ({HTTPStatus(status).phrase})"
    except ValueError:  # a status of the provider's own, like 529
        return ""


def _unreachable(host: str, why: str, *, lasting: bool = False) -> ProviderError:
    return ProviderError("provider.unreachable", f"{host} could not be reached: {why}", lasting=lasting)


def _root(error: BaseException) -> BaseException:
    """Give the operating system's or the TLS library's error below httpx's, or the innermost one."""
    chain = list(_causes(error))
    return next((cause for cause in reversed(chain) if isinstance(cause, OSError)), chain[-1])


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    waiting: list[BaseException] = [error]
    while waiting:
        cause = waiting.pop()
        if id(cause) in seen:
            continue
        seen.add(id(cause))
        yield cause
        if isinstance(cause, ExceptionGroup):  # one attempt for each address of a name; the first speaks for all
            waiting.append(cast("ExceptionGroup[Exception]", cause).exceptions[0])
        waiting.extend(below for below in (cause.__context__, cause.__cause__) if below is not None)
