"""A scripted tool, the double of the tool interface: it does what a test says, and remembers what it was asked.

It passes the same conformance suite as the built-in tools. No configuration can enable it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from msgspec import Struct

from refold_protocol.json_text import compact_json
from refold_protocol.session.messages import ToolSchema
from refold_server.tools.tool import ToolContext, ToolOutput


class ScriptedParams(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Arguments of a scripted tool: one that a call must give, one that it may leave out."""

    need_this: str
    number: int | None = None


class ScriptedTool:
    """A tool whose run is `body`. `runs` holds the params of each run, in order."""

    params = ScriptedParams

    def __init__(
        self, body: Callable[[ScriptedParams], Awaitable[ToolOutput]], *, name: str = "scripted", read_only: bool = True
    ) -> None:
        self.schema = ToolSchema(
            name=name,
            description="Does what a test says.",
            parameters=compact_json(
                {
                    "type": "object",
                    "properties": {
                        "needThis": {"type": "string", "description": "Any text."},
                        "number": {"type": "integer", "description": "Any number."},
                    },
                    "required": ["needThis"],
                    "additionalProperties": False,
                }
            ),
        )
        self.read_only = read_only
        self.runs: list[ScriptedParams] = []
        self._body = body

    async def run(self, context: ToolContext, params: ScriptedParams) -> ToolOutput:
        """Do what the test says. Raises what it raises."""
        self.runs.append(params)
        return await self._body(params)
