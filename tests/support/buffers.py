"""Editor's open buffers for tests of tools: what is open, what was edited there, what it was told is on disk."""

from __future__ import annotations

from pathlib import Path

import msgspec

from refold_server.tools.open_buffers import OpenBuffer, closed_meanwhile
from refold_server.tools.tool_failure import ToolFailure


class Buffers:
    """An editor that has open what a test says; it edits, or refuses with `failure`. `labels` names its edits, in order."""

    def __init__(self, *buffers: OpenBuffer) -> None:
        self.open = list(buffers)
        self.labels: list[str] = []
        self.told_saved: list[OpenBuffer] = []
        self.failure: ToolFailure | None = None

    async def snapshot(self) -> tuple[OpenBuffer, ...]:
        """Give what is open."""
        return tuple(self.open)

    async def edit(self, buffer: OpenBuffer, text: str, label: str) -> None:
        """Edit a buffer that is as given."""
        if self.failure is not None:
            raise self.failure
        if buffer not in self.open:
            raise closed_meanwhile(buffer)
        self.labels.append(label)
        place = self.open.index(buffer)
        self.open[place] = msgspec.structs.replace(buffer, text=text, version=buffer.version + 1, saved=False)

    async def saved(self, buffer: OpenBuffer) -> None:
        """Note it."""
        self.told_saved.append(buffer)
        self.open = [msgspec.structs.replace(one, saved=True) if one == buffer else one for one in self.open]

    def typed(self, path: Path, text: str) -> None:
        """Have a person type: the buffer of `path` has this text now."""
        version = 1 + max((one.version for one in self.open), default=0)
        self.open = [one for one in self.open if one.path != str(path)] + [OpenBuffer(str(path), text, version)]

    def text(self, path: Path) -> str:
        """Give the text of an open buffer."""
        (found,) = [one.text for one in self.open if one.path == str(path)]
        return found
