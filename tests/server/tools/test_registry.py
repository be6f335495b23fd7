"""The table of built-in tools: what models are told, in which order, and that it is true."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import msgspec
import pytest

from refold_protocol.errors import ConfigError, InvariantError
from refold_protocol.json_text import check_json
from refold_server.tools.registry import BUILT_IN, Registry, built_in_tools
from refold_server.tools.tool import Tool
from tests.support.tool_calls import call, code, text

every_tool = pytest.mark.parametrize("tool", BUILT_IN, ids=lambda tool: tool.schema.name)


def _from_struct(tool: Tool) -> dict[str, Any]:
    """Give what msgspec reads out of a tool's struct, in the form in which the tools write their schemas."""
    (definition,) = msgspec.json.schema_components([tool.params], ref_template="{name}")[1].values()
    properties = {name: _plain(row) for name, row in definition["properties"].items()}
    return {"type": "object", "properties": properties, "required": definition["required"], "additionalProperties": False}


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    (kind,) = [one for one in row.get("anyOf", [row]) if one != {"type": "null"}]
    return {key: value for key, value in kind.items() if key != "default"}


@every_tool
def test_the_schema_that_models_see_is_what_the_struct_takes(tool: Tool) -> None:
    schema = json.loads(check_json(tool.schema.parameters))
    for row in schema["properties"].values():
        assert row.pop("description"), "a parameter without a word on it"
    assert schema == _from_struct(tool)
    assert msgspec.structs.fields(tool.params)
    assert tool.params.__struct_config__.forbid_unknown_fields
    assert tool.params.__struct_config__.frozen


@every_tool
def test_a_tool_is_described_and_changes_nothing(tool: Tool) -> None:
    assert tool.schema.description.endswith(".")
    assert tool.read_only


def test_the_tools_are_those_of_this_release_in_their_order_b_06() -> None:
    assert built_in_tools().names == ("list_files", "read_file", "search_text")
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
        Registry((BUILT_IN[0], BUILT_IN[0]))


@pytest.mark.parametrize("seed", ["0", "1"])
def test_the_schemas_are_the_same_bytes_whatever_the_hash_seed_is_b_06(seed: str) -> None:
    program = "from refold_server.tools.registry import built_in_tools; print(repr(built_in_tools().schemas))"
    done = subprocess.run(
        [sys.executable, "-c", program], env={"PYTHONHASHSEED": seed}, capture_output=True, check=True, text=True
    )
    assert done.stdout.strip() == repr(built_in_tools().schemas)


@pytest.mark.anyio
async def test_a_disabled_tool_does_not_run(tmp_path: Any) -> None:
    answer = await call(tmp_path, "list_files", built_in_tools(("read_file",)))
    assert code(answer) == "UNKNOWN_TOOL"
    assert text(answer) == "there is no tool 'list_files'; the tools are: read_file"
