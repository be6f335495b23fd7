"""What the pipeline relies on, asked of every built-in tool and of the double: of those that read, and of those that change."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Struct
from msgspec.structs import replace

from refold_protocol.json_text import check_json
from refold_protocol.session.messages import ImageBlock, TextBlock
from refold_server.tools.session_tools import BUILT_IN
from refold_server.tools.tool import ProposingTool, Tool, ToolContext, ToolOutput, read_arguments, text_output
from refold_server.tools.tool_failure import CODES, ToolFailure
from tests.support.scripted_tool import ScriptedParams, ScriptedTool
from tests.support.tool_calls import PlayedResults, context, fill


async def _echo(params: ScriptedParams) -> ToolOutput:
    if ".." in params.need_this:
        raise ToolFailure("DENIED", "OutsideWorkspace", "not there")
    return text_output(params.need_this)


TOOLS: tuple[Tool, ...] = (*BUILT_IN, ScriptedTool(_echo))
SKILL = "---\nname: good\ndescription: Good.\n---\nbody\n"
GOOD: dict[str, dict[str, Any]] = {
    "list_files": {"path": "sub"},
    "read_file": {"path": "a.txt", "startLine": 1},
    "search_text": {"pattern": "inside", "regex": True},
    "write_file": {"path": "new/c.txt", "content": "inside\n"},
    "edit_file": {"path": "a.txt", "old": "in", "new": "out"},
    "read_skill": {"name": "good"},
    "read_result": {"seq": 7},
    "scripted": {"needThis": "x"},
}
OUTSIDE: dict[str, dict[str, Any]] = {
    "list_files": {"path": ".."},
    "read_file": {"path": "../x"},
    "search_text": {"pattern": "x", "path": ".."},
    "write_file": {"path": "../x", "content": ""},
    "edit_file": {"path": "../x", "old": "a", "new": "b"},
    "read_skill": {"name": "good", "file": "../../../a.txt"},
    "read_result": {"seq": 8},
    "scripted": {"needThis": ".."},
}
every_tool = pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.schema.name)
reading_tools = pytest.mark.parametrize("tool", [one for one in TOOLS if one.read_only], ids=lambda tool: tool.schema.name)
changing_tools = pytest.mark.parametrize("tool", [one for one in TOOLS if not one.read_only], ids=lambda tool: tool.schema.name)


@pytest.fixture
def place(tmp_path: Path) -> ToolContext:
    """A call in a small workspace."""
    root = fill(tmp_path, {"a.txt": "inside\n", "sub/b.txt": "inside\n", ".agents/skills/x/SKILL.md": SKILL})
    return replace(context(root), results=PlayedResults({7: "a result"}))


def _params(tool: Tool, arguments: dict[str, Any]) -> Struct:
    return read_arguments(tool.schema.name, json.dumps(arguments), tool.params)


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
    assert tool.params.__struct_config__.forbid_unknown_fields
    assert tool.params.__struct_config__.frozen


@every_tool
def test_a_tool_says_what_it_is_and_says_the_same_again(tool: Tool) -> None:
    assert tool.schema.description.endswith(".")
    assert tool.schema == tool.schema
    assert tool.schema.name.isidentifier()
    assert tool.read_only or isinstance(tool, ProposingTool), "what changes something says what before"


@reading_tools
@pytest.mark.anyio
async def test_a_run_gives_blocks_and_leaves_nothing_behind(tool: Tool, place: ToolContext) -> None:
    params = _params(tool, GOOD[tool.schema.name])
    first = await tool.run(place, params)
    before = sorted(os.listdir("/dev/fd"))
    second = await tool.run(place, params)
    assert sorted(os.listdir("/dev/fd")) == before
    assert first == second, "reading twice gives the same"
    assert all(isinstance(block, TextBlock | ImageBlock) for block in first.content)
    assert first.content


def _tree(root: Path) -> dict[str, bytes | None]:
    return {str(path): path.read_bytes() if path.is_file() else None for path in root.rglob("*")}


@changing_tools
@pytest.mark.anyio
async def test_a_proposal_says_what_would_be_done_does_nothing_and_is_done_once(tool: Tool, place: ToolContext) -> None:
    assert isinstance(tool, ProposingTool)
    params = _params(tool, GOOD[tool.schema.name])
    before, open_files = _tree(place.workspace.root), sorted(os.listdir("/dev/fd"))
    first, second = await tool.propose(place, params), await tool.propose(place, params)
    assert first.subject == second.subject
    assert first.subject.kind == "diff"
    assert _tree(place.workspace.root) == before
    done = await first.apply()
    assert done.content
    json.loads(check_json(done.meta or ""))
    after = _tree(place.workspace.root)
    assert after != before
    with pytest.raises(ToolFailure) as caught:
        await second.apply()
    assert caught.value.code == "STALE"
    assert _tree(place.workspace.root) == after
    assert sorted(os.listdir("/dev/fd")) == open_files


@every_tool
@pytest.mark.anyio
async def test_a_failure_has_a_code_of_the_table(tool: Tool, place: ToolContext) -> None:
    with pytest.raises(ToolFailure) as caught:
        await tool.run(place, _params(tool, OUTSIDE[tool.schema.name]))
    assert caught.value.code in CODES
    assert caught.value.name.isidentifier()
    assert caught.value.message
