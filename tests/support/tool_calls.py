"""What tests of tools share: a workspace made of a few files, and one call through the whole pipeline."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from refold_protocol.ids import CallId
from refold_protocol.session.messages import TextBlock
from refold_server.tools.session_tools import ToolTable, built_in_tools
from refold_server.tools.tool import ToolContext
from refold_server.tools.tool_runner import ToolAnswer, execute
from refold_server.tools.workspace_path import Workspace


class PlayedResults:
    """Earlier results of a session, by seq; `most` characters can be read at once, None: any number."""

    def __init__(self, texts: Mapping[int, str], most: int | None = None) -> None:
        self.texts = texts
        self.most = most

    @property
    def are_shortened(self) -> bool:
        """Whether there are any."""
        return bool(self.texts)

    def text(self, seq: int) -> str | None:
        """Give one of them."""
        return self.texts.get(seq)

    def readable(self, text: str) -> int:
        """Give how much of a text can be read at once."""
        return len(text) if self.most is None else min(len(text), self.most)


def fill(root: Path, files: Mapping[str, str | bytes]) -> Path:
    """Write files below `root`, folders included, and give `root`."""
    for name, content in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
    return root


def context(root: Path, **settings: Any) -> ToolContext:
    """Give the context of a call in the workspace `root`."""
    return ToolContext(Workspace(root), CallId("c1"), **settings)


async def call(root: Path, name: str, registry: ToolTable | None = None, /, **arguments: Any) -> ToolAnswer:
    """Call a built-in tool in the workspace `root`, as the loop would."""
    return await execute(registry or built_in_tools(), name, json.dumps(arguments), context(root))


def text(answer: ToolAnswer) -> str:
    """Give the text of an answer that holds one block of it."""
    (block,) = answer.content
    assert isinstance(block, TextBlock)
    return block.text


def code(answer: ToolAnswer) -> str | None:
    """Give the code of a failed call, None for one that succeeded."""
    assert answer.is_error == (answer.error is not None)
    return None if answer.error is None else answer.error.code
