"""A plugin's tools as refold offers them: the schema is fixed when a tool is registered, in one spelling.

Every provider renders tools before the history, so a schema whose bytes depend on a hash seed or change while the process
lives would make the whole history be paid again. Keys and `required` lists are sorted; nothing else of a schema is touched.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any, Final, Literal, TypeGuard, TypeVar, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from refold_protocol.json_text import JsonText, compact_json, parse_strict
from refold_protocol.session.events import ApprovalSubject
from refold_protocol.session.messages import ToolSchema
from refold_server.plugins.hook_values import frozen, frozen_tool
from refold_server.tools.tool import Proposal, ProposingTool, Tool, ToolContext, ToolOutput, text_output

Params = TypeVar("Params", bound=Struct)
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


class FixedTool:
    """A plugin's tool as it is offered: what it says of itself was asked once. Raises ValueError for what is no tool."""

    def __init__(self, tool: Tool) -> None:
        schema = frozen_tool(tool.schema)
        if not _NAME.fullmatch(schema.name):
            raise ValueError(f"the tool {schema.name!r} needs a name of 1 to 64 letters, digits, dashes and underscores")
        self.schema = replace(schema, parameters=canonical_schema(schema.parameters))
        self.read_only = bool(tool.read_only)
        self.params = tool.params
        self._run = tool.run
        if not _is_params(self.params) or not callable(self._run):
            raise ValueError(f"the tool {schema.name!r} needs params, a struct that forbids unknown fields, and run")
        if isinstance(tool, ProposingTool):  # only then is this one, too
            self._work_out = tool.propose
            self.propose = self._propose

    async def run(self, context: ToolContext, params: Any) -> ToolOutput:
        """Run it. What it gives is copied, frozen. Raises what it raises, and TypeError for what is no output."""
        return _copied(await self._run(context, params))

    async def _propose(self, context: ToolContext, params: Any) -> Proposal:
        proposal: Any = await self._work_out(context, params)
        if not isinstance(proposal, Proposal):
            raise TypeError(f"it gave {type(proposal).__name__}, not Proposal")
        apply = proposal.apply

        async def applied() -> ToolOutput:
            return _copied(await apply())

        return Proposal(frozen(proposal.subject, ApprovalSubject), applied)


def _copied(output: Any) -> ToolOutput:
    if not isinstance(output, ToolOutput):
        raise TypeError(f"it gave {type(output).__name__}, not ToolOutput")
    return frozen(output, ToolOutput)


class _FunctionTool:
    def __init__(
        self,
        schema: ToolSchema,
        params: type[Any],
        body: Callable[[ToolContext, Any], Awaitable[ToolOutput | str]],
        read_only: bool,
    ) -> None:
        self.schema = schema
        self.params = params
        self.read_only = read_only
        self._body = body

    async def run(self, context: ToolContext, params: Any) -> ToolOutput:
        output = await self._body(context, params)
        return text_output(output) if isinstance(output, str) else output


def tool(
    name: str,
    description: str,
    params: type[Params],
    run: Callable[[ToolContext, Params], Awaitable[ToolOutput | str]],
    *,
    read_only: bool = False,
) -> Tool:
    """Make a tool of a function and of the struct of its arguments, which must be frozen and forbid unknown fields.

    The JSON Schema follows from the struct; describe fields with `Annotated[T, Meta(description=…)]`. `run` gives text or a
    ToolOutput, and raises ToolFailure. Raises ValueError for a struct that cannot be the arguments of a tool.
    """
    if not _is_params(params) or not params.__struct_config__.frozen:
        raise ValueError(f"the params of the tool {name!r} must be a frozen struct that forbids unknown fields")
    return _FunctionTool(ToolSchema(name, description, _schema_of(params)), params, run, read_only)


def canonical_schema(text: str) -> JsonText:
    """Give a JSON Schema with its keys and its `required` lists sorted. Raises InvalidJsonError, ValueError for no object."""
    value = parse_strict(text)
    if not isinstance(value, dict):
        raise ValueError("the parameters of a tool are a JSON Schema, which is an object")
    return compact_json(_sorted(cast("object", value), "schema"))


_Holds = Literal["schema", "names", "value"]
"""What an object is: a schema, schemas by names that somebody gave, or a value that a schema speaks of."""

_WITHIN: Final[dict[str, _Holds]] = {
    **dict.fromkeys(("properties", "patternProperties", "$defs", "definitions", "dependentSchemas"), cast("_Holds", "names")),
    **dict.fromkeys(("default", "const", "enum", "examples"), cast("_Holds", "value")),
}


def _sorted(value: object, holds: _Holds) -> object:
    if isinstance(value, list):
        return [_sorted(item, holds) for item in cast("list[object]", value)]
    if not isinstance(value, dict):
        return value
    found: dict[str, object] = {}
    for key, item in sorted(cast("dict[str, object]", value).items()):
        if holds == "schema" and key == "required" and _is_names(item):
            found[key] = sorted(item)
        else:
            inside = _WITHIN.get(key, "schema") if holds == "schema" else "schema" if holds == "names" else "value"
            found[key] = _sorted(item, inside)
    return found


def _is_names(value: object) -> TypeGuard[list[str]]:
    return isinstance(value, list) and all(isinstance(item, str) for item in cast("list[object]", value))


def _schema_of(params: type[Struct]) -> JsonText:
    try:
        whole: dict[str, Any] = msgspec.json.schema(params)
    except TypeError as error:  # a field of a type that JSON Schema has no word for
        reason = str(error).rpartition("\n")[2]
        raise ValueError(f"{params.__name__} has no JSON Schema: {reason}") from None
    definitions: dict[str, Any] = whole["$defs"]
    name = str(whole["$ref"]).rpartition("/")[2]
    schema: dict[str, Any] = {key: value for key, value in definitions[name].items() if key not in ("title", "description")}
    text = compact_json(schema)
    if f'"#/$defs/{name}"' not in text and all(f'"#/$defs/{name}"' not in compact_json(row) for row in definitions.values()):
        del definitions[name]
    return compact_json({**schema, "$defs": definitions} if definitions else schema)


def _is_params(params: object) -> bool:
    return isinstance(params, type) and issubclass(params, Struct) and params.__struct_config__.forbid_unknown_fields
