"""docs/plugins.md: its table is that of the seams, its names are those of the package, and its plugins run in real daemons.

Invariant: Each seam is documented as the table of seams has it, and the plugins of the page run.
"""

from __future__ import annotations

import re
import tomllib
from datetime import date, timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from refold_server import plugins
from refold_server.config_file import build_config, read_toml
from refold_server.plugins import HOOKS, Hook
from tests.support.daemons import Json, Place, new_session, until
from tests.support.plugin_files import named, results, write_plugin

pytestmark = pytest.mark.anyio

TEXT: Final = (Path(__file__).parents[2] / "docs" / "plugins.md").read_text(encoding="utf-8")
PLUGINS: Final = dict(re.findall(r"^```python plugin (\w+)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.mark.parametrize("seam", HOOKS, ids=lambda seam: seam.name)
def test_each_seam_stands_in_the_table_with_its_mode_what_it_may_change_and_what_a_failure_does(seam: Hook[Any]) -> None:
    rows = [line.strip("| ").split(" | ") for line in TEXT.split("\n") if line.startswith("| `")]
    (row,) = (row for row in rows if row[0] == f"`{seam.name}`")
    (constant,) = (name for name in plugins.__all__ if getattr(plugins, name) is seam)
    limit = "–" if seam.limit_s is None else f"{seam.limit_s:g} s"
    assert (row[1], row[3], row[4], row[5]) == (seam.mode, seam.changes, seam.on_failure, limit)
    assert row[2].startswith(f"`{constant}`: ")


def test_the_table_has_the_seams_in_their_order_and_no_others() -> None:
    assert re.findall(r"^\| `([a-z/-]+)` \|", TEXT, re.MULTILINE) == [seam.name for seam in HOOKS]


@pytest.mark.parametrize("word", sorted({seam.mode for seam in HOOKS} | {seam.on_failure for seam in HOOKS}))
def test_each_mode_and_each_effect_of_a_failure_is_explained(word: str) -> None:
    assert re.search(rf"^\* \*\*{word}\*\*: ", TEXT, re.MULTILINE)


@pytest.mark.parametrize("name", sorted(set(plugins.__all__) - {"HOOKS", "Hook"}))
def test_each_name_that_a_plugin_may_import_stands_in_the_page(name: str) -> None:
    assert re.search(rf"`[^`\n]*\b{name}\b[^`\n]*`|^    {name},$|\({name}\(", TEXT, re.MULTILINE)


def test_the_configuration_of_the_page_is_one() -> None:
    first, second = re.findall(r"^```toml\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    config = build_config(read_toml(first, "page"), lambda: Path("/store"))
    assert config.plugins.paths == (Path.home() / ".config/refold/notes.py",)
    assert tomllib.loads(second)["project"]["entry-points"].keys() == {"refold.plugins"}


def calls(name: str, **arguments: str) -> Json:
    return {"text": "I try.", "calls": [{"name": name, "arguments": arguments, "id": f"c-{name}"}]}


async def test_the_example_runs_in_a_daemon(place: Place) -> None:
    (place.workspace / ".env").write_text("KEY=secret\n")
    say = {"text": "Done."}
    path = write_plugin(place, "notes", PLUGINS["notes"])
    place.script(calls("read_file", path="./.env"), calls("note", text="Buy milk."), say, more=named(path))
    async with place.daemon() as client:
        session = await new_session(client, place)
        events = await client.subscribe(session)
        await client.start_turn(session, "Read my secrets.")
        told = await until(events, "turn/end")
        tools = {row["name"]: row["source"] for row in (await client.tools())["tools"]}
    assert told[-1]["data"]["reason"] == {"kind": "completed"}
    denied, noted = results(told)
    assert (denied["error"]["code"], denied["content"][0]["text"][:16]) == ("DENIED", "Files of secrets")
    assert noted["content"] == [{"type": "text", "text": "Noted: Buy milk."}]
    (event,) = (event for event in told if event["type"] == "notes/taken")
    assert event["data"] == {"text": "Buy milk."}
    (said,) = (event["data"] for event in told if event["type"] == "context/message")
    assert said["source"] == {"kind": "plugin", "name": "notes"}
    days = {f"Today is {date.today() + timedelta(days=days):%A}." for days in (0, -1)}  # midnight may have passed
    assert said["content"][0]["text"] in days
    assert tools["note"] == "plugin:notes"
    assert "KEY=secret" not in str(told)
    assert (await place.verify(session))["differences"] == []


async def test_the_contributor_of_the_page_stands_in_the_prefix_of_every_instance(place: Place) -> None:
    place.script({"text": "Yes."}, more=named(write_plugin(place, "house", PLUGINS["house"])))
    found: list[Any] = []
    session = ""
    for _ in range(2):
        async with place.daemon() as client:
            if session:
                await client.open_session(session)
            else:
                session = await new_session(client, place)
            await client.prompt(session, "go")
            found.append((await client.read(session, "header"))["header"]["messagePrefix"])
    assert {"role": "user", "content": [{"type": "text", "text": "Rule of the house: answer in English."}]} in found[0]
    assert found[0] == found[1]
    assert PLUGINS.keys() == {"notes", "house"}
