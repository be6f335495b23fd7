"""One place turns exceptions into errors of the wire, and nothing of a traceback gets out."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import Raw

from refold_protocol import errors as tree
from refold_protocol.errors import KINDS, RETRYABLE_KINDS, ConfigError, InvariantError, ProviderError, RefoldError
from refold_protocol.rpc import wire_errors as errors
from refold_protocol.rpc.wire_errors import (
    APPLICATION_ERROR,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    ErrorObject,
    WireError,
    error_of,
    is_ours,
)
from refold_server.rpc.method import decode_params
from refold_server.rpc.method_table import METHODS


def data(error: ErrorObject) -> Any:
    assert isinstance(error.data, Raw)
    return msgspec.json.decode(error.data)


def classes() -> list[type[RefoldError]]:
    every = [value for value in vars(tree).values() if isinstance(value, type) and issubclass(value, RefoldError)]
    return [cls for cls in every if cls not in (ConfigError, ProviderError)]


@pytest.mark.parametrize("cls", classes())
def test_an_error_of_refold_becomes_31000_with_its_kind(cls: type[RefoldError]) -> None:
    error = error_of(cls("a sentence", seq=4, absent=None), "d1")
    assert (error.code, error.message) == (APPLICATION_ERROR, "a sentence")
    assert data(error)["kind"] == cls.kind
    assert data(error)["retryable"] == (cls.kind in RETRYABLE_KINDS)
    assert (data(error)["seq"], "absent" in data(error)) == (4, False)
    assert data(error)["kind"] in KINDS


def test_the_errors_of_providers_and_settings_keep_what_they_carry() -> None:
    provider = error_of(ProviderError("provider.rateLimited", "slow down", status=429, retry_after_ms=2000), "d1")
    assert data(provider) == {"kind": "provider.rateLimited", "retryable": True, "status": 429, "retryAfterMs": 2000}
    config = error_of(ConfigError("limits.steps", "must be at least 1", file="a.toml", line=3), "d1")
    assert data(config) == {
        "kind": "config.invalid",
        "retryable": False,
        "key": "limits.steps",
        "file": "a.toml",
        "line": 3,
    }


def test_a_bug_tells_its_diagnostics_id_and_nothing_of_itself() -> None:
    error = error_of(ZeroDivisionError("secret detail"), "d1")
    assert error.code == INTERNAL_ERROR
    assert "d1" in error.message
    assert "secret" not in error.message
    assert data(error) == {"kind": "invariant", "retryable": False, "diagnostics": "d1"}


def test_a_broken_invariant_is_ours_and_carries_the_diagnostics_id() -> None:
    broken = InvariantError("two turns at once")
    assert is_ours(broken)
    assert data(error_of(broken, "d1"))["diagnostics"] == "d1"


def test_what_a_handler_says_on_purpose_is_not_ours() -> None:
    fault = WireError(errors.bad_param("x", "$.a", "no"))
    assert error_of(fault, "d1") is fault.error
    assert not is_ours(fault)
    assert not is_ours(tree.SessionBusyError("x"))
    assert is_ours(KeyError("x"))


def test_details_that_are_not_json_do_not_spoil_the_reply() -> None:
    assert "object object" in data(error_of(tree.LogBusyError("x", holder=object()), "d1"))["holder"]


@pytest.mark.parametrize(
    ("method", "params", "path"),
    [
        ("session/read", b"[]", "$"),
        ("session/read", b"5", "$"),
        ("session/read", b"{}", "$.session"),
        ("session/read", b'{"session":7,"view":"events"}', "$.session"),
        ("session/read", b'{"session":"s","view":"changes"}', "$.view"),
        ("session/read", b'{"session":"s","view":"events","page":{"limit":0}}', "$.page.limit"),
        ("session/read", b'{"session":"s","view":"events","page":{"afterwards":0}}', "$.page.afterwards"),
        ("session/read", b'{"session":"s","view":"events","extra":0}', "$.extra"),
        ("turn/start", b'{"session":"s","content":[{"type":"image","blob":"x"}]}', "$.content[0].type"),
        ("turn/start", b'{"session":"s","content":[{"type":"text"}]}', "$.content[0].text"),
        ("turn/start", b'{"session":"s","content":[]}', "$.content"),
        ("turn/start", b'{"session":"s"}', "$"),
        ("initialize", b'{"initializationOptions":{"onDisconnect":"stay"}}', "$.initializationOptions.onDisconnect"),
        ("$/cancelRequest", b"{}", "$.id"),
    ],
)
def test_d05_wrong_params_are_answered_with_their_path(method: str, params: bytes, path: str) -> None:
    with pytest.raises(WireError) as raised:
        decode_params(METHODS[method], Raw(params))
    error = raised.value.error
    assert error.code == INVALID_PARAMS
    assert data(error) == {"path": path}
    assert error.message.startswith(f"{method}: {path}: ")


def test_params_that_are_nested_too_deeply_are_wrong_params() -> None:
    params = b'{"capabilities":{"other":' + b"[" * 5000 + b"]" * 5000 + b"}}"
    with pytest.raises(WireError) as raised:
        decode_params(METHODS["initialize"], Raw(params))
    assert raised.value.error.code == INVALID_PARAMS


def test_each_error_has_the_code_of_its_standard() -> None:
    assert [
        errors.parse_error("x").code,
        errors.invalid_request("x").code,
        errors.method_not_found("x").code,
        errors.not_initialized("x").code,
        errors.request_cancelled("x").code,
        errors.frame_too_large(2, 1).code,
    ] == [-32700, -32600, -32601, -32002, -32800, -31000]
    assert data(errors.frame_too_large(2, 1))["kind"] == "frame.tooLarge"
