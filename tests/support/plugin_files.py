"""Plugin files for tests with whole processes: each test writes what it needs into its place."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.daemons import Json, Place

TOOLS = '''
import sys
from msgspec import Struct, defstruct
from refold_protocol.json_text import compact_json
from refold_protocol.session.messages import ToolSchema
from refold_server.plugins import tool

class Raw:
    """A tool that writes its schema by hand, out of a set."""
    read_only = True
    params = defstruct("Params", [], frozen=True, forbid_unknown_fields=True)
    def __init__(self, name):
        words = {word: {"type": "string"} for word in {"alpha", "beta", "gamma", "delta", "epsilon"}}
        schema = {"properties": words, "required": list(words), "type": "object"}
        self.schema = ToolSchema(name, "By hand.", compact_json(schema))
    async def run(self, context, params):
        return "never"

async def run(context, params):
    return "done by NAME"

fields = [(word, str | None, None) for word in {"one", "two", "three", "four"}]
Params = defstruct("Params", fields, frozen=True, forbid_unknown_fields=True)

def register(registry):
    first, second = TOOLS
    registry.tool(tool(first, "By a struct out of a set.", Params, run, read_only=True))
    registry.tool(Raw(second))
'''


def write_plugin(place: Place, name: str, text: str) -> Path:
    """Write a plugin's file."""
    path = place.root / "plugins" / f"{name}.py"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def write_tools(place: Place, name: str, first: str, second: str) -> Path:
    """Write a plugin that brings two tools, whose schemas come from sets."""
    return write_plugin(place, name, TOOLS.replace("NAME", name).replace("TOOLS", repr((first, second))))


def named(*paths: Path) -> str:
    """Give the configuration that names files of plugins, in this order."""
    return f"[plugins]\npaths = {json.dumps([str(path) for path in paths])}\n"


def tools_of(body: str) -> str:
    """Give the exact text of a body's array of tools."""
    text = body.partition('"tools":')[2]
    _, end = json.JSONDecoder().raw_decode(text)
    return text[:end]


def results(events: list[Json]) -> list[Json]:
    """Give the data of all results of tools."""
    return [event["data"] for event in events if event["type"] == "tool/result"]
