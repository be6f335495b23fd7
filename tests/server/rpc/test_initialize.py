"""The first exchange: generous with what LSP clients send, exact about refold's own options, static in its answer."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from refold_protocol.rpc.initialize import SCHEMA_DIGEST, VERSION, InitializationOptions, InitializeParams
from refold_protocol.rpc.initialize_reply import initialize_result
from refold_protocol.rpc.wire_errors import WireError
from refold_server.rpc.method import decode_params
from refold_server.rpc.method_table import METHODS
from refold_server.rpc.wire_schema import schema_digest


def initialize(params: Any) -> InitializeParams:
    return decode_params(METHODS["initialize"], Raw(msgspec.json.encode(params)))


def encoding(offered: Any) -> str:
    params = initialize({"capabilities": {"general": offered}})
    return initialize_result(params).capabilities.position_encoding


def test_what_lsp_clients_send_beside_passes() -> None:
    params = initialize(
        {
            "processId": 12,
            "rootUri": "file:///w",
            "workspaceFolders": None,
            "trace": "off",
            "clientInfo": {"name": "an editor", "version": "1", "extra": 1},
            "capabilities": {"textDocument": {"x": 1}, "general": {"markdown": {}, "positionEncodings": ["utf-16"]}},
        }
    )
    assert params.process_id == 12
    assert params.client_info is not None
    assert params.client_info.name == "an editor"


@pytest.mark.parametrize("params", [{}, {"processId": None, "capabilities": None, "initializationOptions": None}])
def test_all_of_it_may_be_absent_or_null(params: Any) -> None:
    assert initialize(params) == InitializeParams()
    assert InitializationOptions().on_disconnect == "finish"


@pytest.mark.parametrize("options", [{"unknown": 1}, {"onDisconnect": "stay"}, {"model": 3}, [], "x"])
def test_options_of_refold_that_are_unknown_or_wrong_are_refused(options: Any) -> None:
    with pytest.raises(WireError, match="initializationOptions"):
        initialize({"initializationOptions": options})


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [
        (None, "utf-16"),
        ({}, "utf-16"),
        ({"positionEncodings": []}, "utf-16"),
        ({"positionEncodings": None}, "utf-16"),
        ({"positionEncodings": ["utf-7"]}, "utf-16"),
        ({"positionEncodings": ["utf-8", "utf-16"]}, "utf-8"),
        ({"positionEncodings": ["utf-7", "utf-32", "utf-8"]}, "utf-32"),
    ],
)
def test_d06_the_clients_first_known_position_encoding_is_announced(offered: Any, chosen: str) -> None:
    assert encoding(offered) == chosen


def test_the_announced_version_is_that_of_the_distribution() -> None:
    assert version("refold") == VERSION


def test_the_announced_digest_is_that_of_the_method_table() -> None:
    """Red after a change of the table: run `python -m tests.support.rpc_examples` and read the diff."""
    assert schema_digest(METHODS) == SCHEMA_DIGEST
