"""Owns the errors of the wire: JSON-RPC's codes, and the one place that turns exceptions into them.

    −32700  broken JSON                       −32600  not a request, or not now     −32601  no such method
    −32602  wrong params, with their path     −32603  a bug, with a diagnostics id  −32002  before `initialize`
    −32800  cancelled by `$/cancelRequest`    −31000  refold's own: `data.kind` tells which (`refold_protocol.errors`)

Never lets a traceback or an exception's class out: the peer gets a sentence, the log gets the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from refold_protocol.errors import RETRYABLE_KINDS, RefoldError

RpcId: TypeAlias = int | str
"""A request's id as it came: `1` and `"1"` are two ids."""

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
SERVER_NOT_INITIALIZED: Final = -32002
REQUEST_CANCELLED: Final = -32800
APPLICATION_ERROR: Final = -31000


class ErrorObject(Struct, frozen=True, gc=False, omit_defaults=True):
    """An error as it stands in a reply. `data` is the text of any JSON value."""

    code: int
    message: str
    data: Raw | UnsetType = UNSET


class WireError(Exception):
    """Raised by a handler, or around one, to answer with exactly this error."""

    def __init__(self, error: ErrorObject) -> None:
        super().__init__(error.message)
        self.error = error


def error_of(exception: BaseException, diagnostics: str) -> ErrorObject:
    """Give the error that answers a request whose handler raised `exception`.

    `diagnostics` is an id under which the caller logs the traceback; it is told to the peer only for a fault of ours.
    """
    if isinstance(exception, WireError):
        return exception.error
    if isinstance(exception, RefoldError):
        return application_error(exception, diagnostics)
    return internal_error(diagnostics)


def is_ours(exception: BaseException) -> bool:
    """Tell whether the exception shows a fault of refold itself, so that its traceback belongs into the log."""
    if isinstance(exception, RefoldError):
        return exception.error_kind == "invariant"
    return not isinstance(exception, WireError)


def application_error(error: RefoldError, diagnostics: str | None = None) -> ErrorObject:
    """Give −31000 with `data {kind, retryable, …details}`; with a diagnostics id for a broken invariant."""
    kind = error.error_kind
    data: dict[str, Any] = {"kind": kind, "retryable": kind in RETRYABLE_KINDS, **error.details}
    if kind == "invariant" and diagnostics is not None:
        data["diagnostics"] = diagnostics
    return _error(APPLICATION_ERROR, error.message, data)


def parse_error(reason: str) -> ErrorObject:
    """Give −32700: the body is no JSON."""
    return _error(PARSE_ERROR, f"not JSON: {reason}")


def invalid_request(reason: str) -> ErrorObject:
    """Give −32600: JSON, but not a request that can be taken (now)."""
    return _error(INVALID_REQUEST, reason)


def method_not_found(method: str) -> ErrorObject:
    """Give −32601."""
    return _error(METHOD_NOT_FOUND, f"no such method: {method}")


def invalid_params(method: str, error: Exception) -> ErrorObject:
    """Give −32602 for what msgspec found wrong in params: the sentence and `data {path}` name the place."""
    text = str(error)
    reason, at, place = text.rpartition(" - at `")
    path = place.rstrip("`") if at else "$"
    reason = reason if at else text
    if reason.startswith((_UNKNOWN_FIELD, _MISSING_FIELD)):
        path = f"{path}.{reason.split('`')[1]}"
        known = "is not taken here" if reason.startswith(_UNKNOWN_FIELD) else "is missing"
        reason = f"this parameter {known}"
    return bad_param(method, path, reason)


def bad_param(method: str, path: str, reason: str) -> ErrorObject:
    """Give −32602 for the value at `path` (`$.page.limit`)."""
    return _error(INVALID_PARAMS, f"{method}: {path}: {reason}", {"path": path})


def not_initialized(method: str) -> ErrorObject:
    """Give −32002: a request before `initialize`."""
    return _error(SERVER_NOT_INITIALIZED, f"{method} before initialize")


def request_cancelled(method: str) -> ErrorObject:
    """Give −32800: the request was cancelled; what it began goes on where it is not bound to the request."""
    return _error(REQUEST_CANCELLED, f"{method} was cancelled")


def internal_error(diagnostics: str) -> ErrorObject:
    """Give −32603: a bug. The traceback is in the log under the diagnostics id."""
    message = f"a fault of refold itself; its log has the details under {diagnostics}"
    return _error(INTERNAL_ERROR, message, {"kind": "invariant", "retryable": False, "diagnostics": diagnostics})


def frame_too_large(length: int, limit: int) -> ErrorObject:
    """Give −31000 `frame.tooLarge` for a body of `length` bytes, which was skipped."""
    data = {"kind": "frame.tooLarge", "retryable": False, "length": length, "limit": limit}
    return _error(APPLICATION_ERROR, f"a message of {length} bytes is above the limit of {limit}", data)


def _error(code: int, message: str, data: Mapping[str, Any] | None = None) -> ErrorObject:
    return ErrorObject(code, message, UNSET if data is None else Raw(_ENCODER.encode(data)))


_UNKNOWN_FIELD: Final = "Object contains unknown field `"
_MISSING_FIELD: Final = "Object missing required field `"
_ENCODER: Final = msgspec.json.Encoder(enc_hook=repr)
