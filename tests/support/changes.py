"""Calls of tools that change files, as one session makes them: proposed, shown, applied, and what was seen remembered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from refold_server.tools.open_buffers import NO_BUFFERS
from refold_server.tools.session_tools import built_in_tools
from refold_server.tools.text_file import SeenTexts
from refold_server.tools.tool import ToolContext
from refold_server.tools.tool_runner import Proposed, ToolAnswer, execute, propose
from tests.support.tool_calls import context


class Changing:
    """A session in the workspace `root`."""

    def __init__(self, root: Path, buffers: Any = NO_BUFFERS) -> None:
        self.root = root
        self.context: ToolContext = context(root, buffers=buffers, seen=SeenTexts())

    async def ask(self, name: str, **arguments: Any) -> Proposed | ToolAnswer:
        """Have a call worked out: what would be done, or why it cannot be."""
        proposed = await propose(built_in_tools(), name, json.dumps(arguments), self.context)
        assert proposed is not None
        return proposed

    async def proposed(self, name: str, **arguments: Any) -> Proposed:
        """Have a call worked out that can be done."""
        proposed = await self.ask(name, **arguments)
        assert isinstance(proposed, Proposed), proposed
        return proposed

    async def refused(self, name: str, **arguments: Any) -> ToolAnswer:
        """Have a call worked out that cannot be done."""
        answer = await self.ask(name, **arguments)
        assert isinstance(answer, ToolAnswer)
        assert answer.is_error
        return answer

    async def read(self, path: str = "a.txt") -> ToolAnswer:
        """Read a file."""
        return await execute(built_in_tools(), "read_file", json.dumps({"path": path}), self.context)

    async def edit(self, old: str, new: str, path: str = "a.txt", **more: Any) -> ToolAnswer:
        """Edit a file, with whatever comes of it."""
        return await self.run("edit_file", path=path, old=old, new=new, **more)

    async def write(self, content: str, path: str = "a.txt") -> ToolAnswer:
        """Write a file, with whatever comes of it."""
        return await self.run("write_file", path=path, content=content)

    async def run(self, name: str, **arguments: Any) -> ToolAnswer:
        """Run a call that is allowed at once."""
        proposed = await self.ask(name, **arguments)
        return await proposed.run() if isinstance(proposed, Proposed) else proposed
