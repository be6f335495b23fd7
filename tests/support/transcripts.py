"""Golden transcripts: whole daemons in one story, written down.

A story is a function of a `transcripts_of_*` file: its name is the file's, its docstring the title and what it shows. To
add one, write the function and put it into its file's STORIES. Run as a program (`make golden`) this writes the files
anew; read the diff before you commit it: each changed line is something that clients see.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final, TypeAlias

from tests.support import (
    transcripts_of_approvals,
    transcripts_of_changes,
    transcripts_of_compaction,
    transcripts_of_inputs,
    transcripts_of_kills,
    transcripts_of_lives,
    transcripts_of_plugins,
    transcripts_of_turns,
)
from tests.support.transcripts_stage import Tale

Story: TypeAlias = Callable[[Tale], Awaitable[None]]

FAMILIES: Final = (
    transcripts_of_turns,
    transcripts_of_inputs,
    transcripts_of_changes,
    transcripts_of_plugins,
    transcripts_of_approvals,
    transcripts_of_compaction,
    transcripts_of_kills,
    transcripts_of_lives,
)

GOLDEN: Final = Path(__file__).parents[1] / "golden" / "transcripts"

AT_ONCE: Final = 4
"""How many stories are told at the same time."""

STORIES: Final[dict[str, Story]] = {story.__name__.replace("_", "-"): story for family in FAMILIES for story in family.STORIES}
"""Every story, by the name of its file."""


def golden_file(name: str) -> Path:
    """Give the file that holds a transcript."""
    return GOLDEN / f"{name}.txt"


async def transcript(name: str) -> str:
    """Tell a story, and give what its file would hold if it were written today."""
    story = STORIES[name]
    title, _, shows = (inspect.getdoc(story) or "").partition("\n\n")
    with tempfile.TemporaryDirectory(prefix="refold-story-") as root:
        async with AsyncExitStack() as ends:
            tale = Tale(Path(root), ends)
            try:
                await story(tale)
            except BaseException as error:  # raised again, with what whoever looks for the cause needs
                error.add_note("\n".join(["told so far:", *tale.lines[-30:], "its daemons said:", tale.errors()]))
                raise
    return "\n".join([title, "=" * len(title), "", shows, *tale.lines, ""])


async def write(names: list[str]) -> None:
    """Write the golden files of these stories."""
    GOLDEN.mkdir(parents=True, exist_ok=True)
    limit = asyncio.Semaphore(AT_ONCE)

    async def write_one(name: str) -> None:
        async with limit:
            golden_file(name).write_text(await transcript(name), encoding="utf-8")

    async with asyncio.TaskGroup() as group:
        for name in names:
            group.create_task(write_one(name))


def main() -> None:
    """Write the golden files of the stories that are named, or of all of them; those of no story are removed."""
    named = sys.argv[1:]
    asyncio.run(write(named or list(STORIES)))
    for path in GOLDEN.glob("*.txt"):
        if path.stem not in STORIES:
            path.unlink()


if __name__ == "__main__":
    main()
