"""The table of built-in tools: which there are, and in which order models are told of them."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from refold_protocol.errors import ConfigError, InvariantError
from refold_server.tools.session_tools import BUILT_IN, ToolTable, built_in_tools
from tests.support.tool_calls import call, code, text


def test_the_tools_are_those_of_this_release_in_their_order_b_06() -> None:
    first = ("list_files", "read_file", "search_text", "write_file", "edit_file")
    assert built_in_tools().names == (*first, "read_skill", "read_result")
    assert built_in_tools().schemas == tuple(tool.schema for tool in BUILT_IN)


def test_a_configuration_filters_the_tools_and_does_not_reorder_them_b_06() -> None:
    assert built_in_tools(("search_text", "list_files")).names == ("list_files", "search_text")
    assert built_in_tools(("read_file", "read_file")).names == ("read_file",)


def test_no_enabled_tools_are_no_tools() -> None:
    assert built_in_tools(()).names == ()
    assert built_in_tools(()).schemas == ()


def test_an_unknown_name_is_a_wrong_configuration() -> None:
    with pytest.raises(ConfigError, match="no tool 'read_fil'; did you mean 'read_file'") as caught:
        built_in_tools(("list_files", "read_fil"))
    assert caught.value.key == "tools.enabled"


def test_two_tools_of_one_name_are_a_bug() -> None:
    with pytest.raises(InvariantError):
        ToolTable((BUILT_IN[0], BUILT_IN[0]))


@pytest.mark.parametrize("seed", ["0", "1"])
def test_the_schemas_are_the_same_bytes_whatever_the_hash_seed_is_b_06(seed: str) -> None:
    program = "from refold_server.tools.session_tools import built_in_tools; print(repr(built_in_tools().schemas))"
    done = subprocess.run(
        [sys.executable, "-c", program], env={"PYTHONHASHSEED": seed}, capture_output=True, check=True, text=True
    )
    assert done.stdout.strip() == repr(built_in_tools().schemas)


@pytest.mark.anyio
async def test_a_disabled_tool_does_not_run(tmp_path: Any) -> None:
    answer = await call(tmp_path, "list_files", built_in_tools(("read_file",)))
    assert code(answer) == "UNKNOWN_TOOL"
    assert text(answer) == "there is no tool 'list_files'; the tools are: read_file"
