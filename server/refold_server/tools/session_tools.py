"""The table of built-in tools, and the tools that one daemon has, in an order that nothing can change.

Tools stand before the history in every provider's prompt: another order would make the whole history be paid again. So
it is the order of the table, then that in which plugins registered theirs, however a configuration lists the names.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

from refold_protocol.errors import ConfigError, InvariantError
from refold_protocol.session.messages import ToolSchema
from refold_server.tools.edit_file import EditFile
from refold_server.tools.list_files import ListFiles
from refold_server.tools.read_file import ReadFile
from refold_server.tools.read_result import ReadResult
from refold_server.tools.read_skill import ReadSkill
from refold_server.tools.search_text import SearchText
from refold_server.tools.tool import Tool
from refold_server.tools.write_file import WriteFile

BUILT_IN: Final[tuple[Tool, ...]] = (ListFiles(), ReadFile(), SearchText(), WriteFile(), EditFile(), ReadSkill(), ReadResult())
"""Every tool that comes with refold, in the order in which models are told of them. `read_skill` and `read_result` are last,
since not every session is offered them: what stands before them is the same bytes for all."""


AT_TIMES: Final = frozenset(("read_result", "read_skill"))
"""Tools that are offered only where there is something for them to read."""


class ToolTable:
    """Tools by name, in the order given."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        self._tools: dict[str, Tool] = {}
        for tool in tools:
            if tool.schema.name in self._tools:
                raise InvariantError(f"two tools are called {tool.schema.name}")
            self._tools[tool.schema.name] = tool

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all tools, in order."""
        return tuple(self._tools)

    @property
    def schemas(self) -> tuple[ToolSchema, ...]:
        """What a model is told of the tools, in order; empty when there are none."""
        return tuple(tool.schema for tool in self._tools.values())

    def find(self, name: str) -> Tool | None:
        """Give the tool of that name, or None."""
        return self._tools.get(name)


def offered_tools(brought: Iterable[Tool], enabled: tuple[str, ...] | None = None) -> ToolTable:
    """Give the built-in tools and, after them, those that plugins brought, where their names are `enabled`: all for None,
    none for an empty tuple. Raises ConfigError for a name that no tool has."""
    tools = (*BUILT_IN, *brought)
    if enabled is None:
        return ToolTable(tools)
    known = [tool.schema.name for tool in tools]
    for name in enabled:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise ConfigError("tools.enabled", f"there is no tool {name!r}; {hint}the tools are {', '.join(known)}")
    return ToolTable(tool for tool in tools if tool.schema.name in enabled)


def built_in_tools(enabled: tuple[str, ...] | None = None) -> ToolTable:
    """Give the built-in tools whose names are `enabled`. As `offered_tools`, without any plugin."""
    return offered_tools((), enabled)
