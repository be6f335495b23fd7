"""Plugin's tool that changes something, for tests with whole processes: what it did is seen in a file, not told.

`change` appends a line to `changed.txt` of the workspace; with `wait`, it then waits for ever, so that a test can end the
process between the deed and its result.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from refold_client import Approval, Client, Subscription
from tests.support.daemons import Json, Place, new_session, types
from tests.support.plugin_files import named, write_plugin

CHANGER = """
import anyio
from msgspec import Struct
from refold_server.plugins import tool

class Change(Struct, frozen=True, forbid_unknown_fields=True):
    line: str
    wait: bool = False

async def change(context, params):
    with open(context.workspace.root / "changed.txt", "a") as file:
        file.write(params.line + "\\n")
    if params.wait:
        await anyio.sleep_forever()
    return "changed"

def register(registry):
    registry.tool(tool("change", "Change something.", Change, change))
"""


def change(line: str = "one", call: str = "c1", **more: Any) -> Json:
    """A scripted reply that calls the tool once."""
    return {"text": "I change it.", "calls": [{"name": "change", "arguments": {"line": line, **more}, "id": call}]}


def changing(place: Place, *replies: Json, more: str = "") -> None:
    """Have daemons offer the tool and the model give these replies; `more` is put before all tables of the configuration."""
    place.script(*replies, more=more + named(write_plugin(place, "changer", CHANGER)))


def changed(place: Place) -> list[str]:
    """What the tool did, in order."""
    path = place.workspace / "changed.txt"
    return path.read_text().split("\n")[:-1] if path.exists() else []


class Person:
    """Whoever is asked on one connection: each question waits in `asked` until the test answers it."""

    def __init__(self, client: Client) -> None:
        self.asked: asyncio.Queue[Approval] = asyncio.Queue()
        self.cancelled: asyncio.Queue[Approval] = asyncio.Queue()
        self._answers: asyncio.Queue[str | None] = asyncio.Queue()
        client.on_approval(self._answer)

    async def question(self) -> Approval:
        """Wait until something is asked."""
        return await self.asked.get()

    def says(self, option: str | None) -> None:
        """Answer the question that waits."""
        self._answers.put_nowait(option)

    async def _answer(self, question: Approval) -> str | None:
        self.asked.put_nowait(question)
        try:
            return await self._answers.get()
        except asyncio.CancelledError:
            self.cancelled.put_nowait(question)
            raise


def always(option: Any) -> Callable[[Approval], Awaitable[Any]]:
    """Whoever answers every question with this."""

    async def answer(question: Approval) -> Any:
        del question
        return option

    return answer


async def started(client: Client, place: Place) -> tuple[str, Subscription]:
    """A session whose first turn runs."""
    session = await new_session(client, place)
    events = await client.subscribe(session)
    await client.start_turn(session, "go")
    return session, events


async def asked(client: Client, place: Place) -> tuple[Person, str, Subscription, Approval]:
    """A session whose first turn waits for the answer to a question."""
    person = Person(client)
    session, events = await started(client, place)
    return person, session, events, await person.question()


def decisions(events: list[Json]) -> list[tuple[str, str, Json]]:
    """Outcome, scope and author of every decision."""
    rows = (event["data"] for event in events if event["type"] == "approval/decided")
    return [(row["outcome"], row["scope"], row["by"]) for row in rows]


def course(events: list[Json]) -> list[str]:
    """The types of events about calls and questions."""
    return [name for name in types(events) if name.startswith(("tool/", "approval/"))]
