"""Owns the JSON-RPC 2.0 envelope: a body to one of four kinds of message, and messages to bodies.

Params and results are passed on as the bytes that came (`msgspec.Raw`): nothing inside them is looked at, so a nested key
named `jsonrpc` is data. Batches are not taken; LSP has none. Must not know methods. Never raises for input.
"""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from refold_protocol.rpc.errors import ErrorObject, RpcId, invalid_request, parse_error


class Request(Struct, frozen=True, gc=False):
    """A call that wants exactly one reply. `params` is None where there are none, or null."""

    id: RpcId
    method: str
    params: Raw | None = None


class Notification(Struct, frozen=True, gc=False):
    """A call that gets no reply."""

    method: str
    params: Raw | None = None


class Response(Struct, frozen=True, gc=False):
    """A reply: an error, else a result (which may be null). `id` is None where the peer could not read ours."""

    id: RpcId | None
    result: Raw
    error: ErrorObject | None = None


class Invalid(Struct, frozen=True, gc=False):
    """A body that is no message: what to answer, and to which id."""

    id: RpcId | None
    error: ErrorObject


Message: TypeAlias = Request | Notification | Response | Invalid

NULL: Final = Raw(b"null")


def decode_message(body: bytes) -> Message:
    """Read one message. What is wrong with it is told by an Invalid, never by an exception."""
    try:
        if not body.isascii():
            body.decode()  # msgspec does not look into strings that it passes on
        wire = _WIRE.decode(body)
    except UnicodeDecodeError as error:
        return Invalid(None, parse_error(f"not UTF-8 at byte {error.start}"))
    except RecursionError:
        return Invalid(None, parse_error("nested too deeply"))
    except msgspec.DecodeError:  # find out what is wrong, and with which id
        return _malformed(body)
    if wire.jsonrpc is UNSET and wire.method is not UNSET:
        return Invalid(None if wire.id is UNSET else wire.id, invalid_request('"jsonrpc": "2.0" is missing'))
    if wire.method is not UNSET:
        params = None if wire.params is UNSET or _is_null(wire.params) else wire.params
        if wire.id is UNSET:
            return Notification(wire.method, params)
        return Request(wire.id, wire.method, params)
    return _response(wire, body)


def encode_request(request_id: RpcId, method: str, params: object = None) -> bytes:
    """Write a request. `params` is a struct, a Raw or None."""
    return _ENCODER.encode(_Call("2.0", request_id, method, UNSET if params is None else params))


def encode_notification(method: str, params: object = None) -> bytes:
    """Write a notification. `params` is a struct, a Raw or None."""
    return _ENCODER.encode(_Call("2.0", UNSET, method, UNSET if params is None else params))


def encode_result(request_id: RpcId, result: object) -> bytes:
    """Write a reply. `result` is a struct, a Raw or None. Raises TypeError or ValueError for what is not JSON."""
    return _ENCODER.encode(_Result("2.0", request_id, result))


def encode_error(request_id: RpcId | None, error: ErrorObject) -> bytes:
    """Write an error reply; `request_id` is None where the request's could not be read."""
    return _ENCODER.encode(_Error("2.0", request_id, error))


def read_error(error: Raw) -> ErrorObject:
    """Read the error of a reply; whatever its shape, it is an error all the same."""
    try:
        return _ERROR.decode(error)
    except (msgspec.DecodeError, RecursionError):
        return ErrorObject(0, "an error without code and message", error)


class _Wire(Struct, gc=False):
    jsonrpc: Literal["2.0"] | UnsetType = UNSET
    id: RpcId | UnsetType = UNSET
    method: str | UnsetType = UNSET
    params: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


class _Call(Struct, gc=False):
    jsonrpc: str
    id: RpcId | UnsetType
    method: str
    params: Any


class _Result(Struct, gc=False):
    jsonrpc: str
    id: RpcId
    result: Any


class _Error(Struct, gc=False):
    jsonrpc: str
    id: RpcId | None
    error: ErrorObject


def _response(wire: _Wire, body: bytes) -> Message:
    if wire.id is UNSET or (wire.result is UNSET and wire.error is UNSET):
        return _malformed(body)
    if wire.error is UNSET or _is_null(wire.error):
        return Response(wire.id, NULL if wire.result is UNSET else wire.result)
    return Response(wire.id, NULL, read_error(wire.error))


def _is_null(value: Raw) -> bool:
    seen = memoryview(value)  # a copy of large params would cost more than the whole message
    return len(seen) == 4 and bytes(seen) == b"null"


def _malformed(body: bytes) -> Message:
    from refold_protocol.rpc.malformed import diagnose  # rarely needed, and it brings the standard library's parser

    return diagnose(body)


_ENCODER: Final = msgspec.json.Encoder()
_WIRE: Final = msgspec.json.Decoder(_Wire)
_ERROR: Final = msgspec.json.Decoder(ErrorObject)
