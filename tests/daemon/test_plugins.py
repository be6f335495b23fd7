"""Plugins in whole daemons: their tools, their event types, their faults, and what they print."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from refold_client import RpcError
from tests.support.daemons import SERVE, Json, Place, new_session, until
from tests.support.packages import plugin_package
from tests.support.plugin_files import named, results, tools_of, write_plugin, write_tools

pytestmark = pytest.mark.anyio

CALL: Json = {"text": "I try.", "calls": [{"name": "z", "arguments": {}, "id": "c0"}]}
SAY: Json = {"text": "Done."}


async def ask(place: Place, session: str | None, seed: int, *plugins: Path) -> tuple[str, str, list[Json]]:
    """Have a daemon ask once in a session (None: a new one) with a call of the tool `z`; give the session, the text of the
    tools of the request, and the events."""
    place.script(CALL, SAY, more=named(*plugins))
    async with place.daemon(("env", f"PYTHONHASHSEED={seed}", *SERVE)) as client:
        if session is None:
            session = await new_session(client, place)
        else:
            await client.open_session(session)
        events = await client.subscribe(session)
        started = await client.start_turn(session, "go")
        told = await until(events, "turn/end", turn=started["turn"])
        assert told[-1]["data"]["reason"] == {"kind": "completed"}
        body = (await client.rebuild(session, started["turn"], 1))["body"]
    assert (await place.verify(session))["differences"] == []
    return session, tools_of(body), told


async def test_b06_tools_of_two_plugins_are_the_same_bytes_whatever_varies(place: Place) -> None:
    """Invariant: What two plugins' tools add to a request is the same bytes whatever the hash seed, the order at a resume, or a
    plugin that is gone.

    B-06: hash seeds, schemas out of sets, a resume with the plugins in the other order, one that vanishes and comes back.
    """
    x = write_tools(place, "x", "z", "a")
    y = write_tools(place, "y", "m", "b")
    session, tools, told = await ask(place, None, 0, x, y)
    names = [one["function"]["name"] for one in json.loads(tools)]
    assert names[0] == "list_files"  # refold's own come first
    assert names[-4:] == ["z", "a", "m", "b"]
    assert results(told)[-1]["content"] == [{"type": "text", "text": "done by x"}]
    other, again, _ = await ask(place, None, 1, x, y)
    assert other != session
    assert again == tools
    for seed, plugins in ((1, (y, x)), (0, (y,)), (1, (x, y))):
        _, again, told = await ask(place, session, seed, *plugins)
        assert again == tools
        assert ("error" in results(told)[-1]) == (x not in plugins)
        if x not in plugins:
            assert results(told)[-1]["error"] == {"name": "UnknownTool", "code": "UNKNOWN_TOOL"}
    headers = [event for event in await place.recorded(session) if event["type"] == "request/header-delta"]
    assert headers == []


NOTES = """
from msgspec import Struct
from refold_server.plugins import PROMPT_SUBMIT
class Taken(Struct, frozen=True):
    text: str
def register(registry):
    registry.event_type("notes/taken", Taken, ignorable=IGNORABLE)
    async def submit(prompt):
        registry.record(prompt.place.session, Taken("milk"))
    registry.on(PROMPT_SUBMIT, submit)
"""


async def noted(place: Place, *, ignorable: bool) -> str:
    """Run a turn with a plugin that records an event of its own, then take the plugin away; give the session."""
    path = write_plugin(place, "notes", NOTES.replace("IGNORABLE", str(ignorable)))
    place.script(SAY, SAY, more=named(path))
    async with place.daemon() as client:
        session = await new_session(client, place)
        events = await client.subscribe(session)
        await client.start_turn(session, "go")
        told = await until(events, "turn/end")
        (event,) = (one for one in told if one["type"] == "notes/taken")
        assert event["data"] == {"text": "milk"}
        assert event.get("ignorable", False) == ignorable
    assert (await place.verify(session))["differences"] == []
    place.script(SAY, SAY)
    return session


async def test_a_log_with_events_that_need_their_plugin_is_read_with_it_and_refused_without_it(place: Place) -> None:
    """Invariant: A log that needs a plugin is refused without it, with its name, and holds with it."""
    session = await noted(place, ignorable=False)
    done = place.refold("verify", session)
    assert done.returncode == 1
    assert "has the type 'notes/taken'" in done.stdout
    assert "The plugin 'notes' is missing" in done.stdout
    rebuilt = place.refold("rebuild", session, "1.1")
    assert rebuilt.returncode != 0
    assert "The plugin 'notes' is missing" in rebuilt.stderr
    async with place.daemon() as client:
        with pytest.raises(RpcError, match="The plugin 'notes' is missing") as caught:
            await client.open_session(session)
        assert caught.value.data["kind"] == "session.format"
    place.script(SAY, SAY, more=named(place.root / "plugins" / "notes.py"))
    assert place.refold("rebuild", session, "1.1").returncode == 0
    async with place.daemon() as client:
        await client.open_session(session)
        await client.prompt(session, "again")
    assert (await place.verify(session))["requests"] == 2


async def test_a_log_with_events_that_may_be_skipped_is_read_everywhere(place: Place) -> None:
    session = await noted(place, ignorable=True)
    assert (await place.verify(session))["requests"] == 1
    assert place.refold("rebuild", session, "1.1").returncode == 0
    async with place.daemon() as client:
        await client.open_session(session)
        assert (await client.read(session, "status"))["status"] == {"status": "idle"}


async def test_a_plugin_that_cannot_be_used_fails_what_needs_it_and_is_tried_again_when_it_was_corrected(place: Place) -> None:
    """Invariant: A plugin that cannot be loaded is never silently left out; one that hangs holds nothing up."""
    path = write_plugin(place, "bad", "import os\nraise ValueError('no\\nmore')")
    place.script(SAY, more=named(path))
    async with place.daemon() as client:
        for _ in range(2):
            with pytest.raises(RpcError) as caught:
                await client.open_session(cwd=place.workspace)
            assert caught.value.data["kind"] == "config.invalid"
            assert caught.value.data["key"] == "plugins.paths"
            assert (caught.value.data["file"], caught.value.data["line"]) == (str(place.config), 2)
            assert f"the plugin of {path} cannot be used: cannot be imported: ValueError: no (" in str(caught.value)
        path.write_text("def register(registry):\n    pass\n")
        session = await new_session(client, place)
        await client.prompt(session, "go")
    assert b"Traceback" not in place.errors.read_bytes()


async def test_the_traceback_of_a_plugin_stands_in_the_log_at_level_debug(place: Place) -> None:
    path = write_plugin(place, "bad", "def deep():\n    raise ValueError('no')\ndef register(registry):\n    deep()\n")
    place.script(SAY, more='log.level = "debug"\n' + named(path))
    async with place.daemon() as client:
        with pytest.raises(RpcError, match="its `register` failed: ValueError: no"):
            await client.open_session(cwd=place.workspace)
    told = place.errors.read_text()
    assert "in deep" in told
    assert "Traceback" in told


async def test_what_a_plugin_prints_reaches_no_client(place: Place) -> None:
    path = write_plugin(
        place,
        "loud",
        "import os, subprocess, sys\n"
        "from refold_server.plugins import OBSERVE\n"
        "print('at import')\n"
        "os.write(1, b'Content-Length: 2\\r\\n\\r\\n{}')\n"
        "subprocess.run(['echo', 'a child'])\n"
        "def register(registry):\n"
        "    print('at register')\n"
        "    registry.on(OBSERVE, lambda seen: print('event', seen.event.seq))\n",
    )
    place.script(SAY, more=named(path))
    async with place.daemon() as client:
        session = await new_session(client, place)
        await client.prompt(session, "go")
    told = place.errors.read_text()
    for word in ("at import", "Content-Length", "a child", "at register", "event 0"):
        assert word in told


async def test_a_tool_that_is_enabled_may_be_a_plugins_and_one_of_nobody_is_told_with_its_place(place: Place) -> None:
    path = write_tools(place, "x", "z", "a")
    place.script(CALL, SAY, more=f'tools.enabled = ["a", "read_file"]\n{named(path)}')
    async with place.daemon() as client:
        rows = (await client.tools())["tools"]
        assert [(row["name"], row["source"], row["readOnly"]) for row in rows] == [
            ("read_file", "builtin", True),
            ("a", "plugin:x", True),
        ]
    place.script(SAY, more=f'tools.enabled = ["aa"]\n{named(path)}')
    async with place.daemon() as client:
        with pytest.raises(RpcError, match=r"tools\.enabled: there is no tool 'aa'; did you mean 'a'") as caught:
            await client.tools()
        assert (caught.value.data["file"], caught.value.data["line"]) == (str(place.config), 1)


async def test_health_tells_what_each_plugin_brought_and_did(place: Place) -> None:
    path = write_plugin(place, "notes", NOTES.replace("IGNORABLE", "True"))
    tools = write_tools(place, "x", "z", "a")
    place.script(SAY, more=named(path, tools))
    async with place.daemon() as client:
        session = await new_session(client, place)
        await client.prompt(session, "go")
        own, notes, x = (await client.health()).get("plugins", [])
    assert (own["plugin"], own["origin"]) == ("refold", "refold")
    assert (notes["plugin"], notes["origin"], notes["eventTypes"]) == ("notes", str(path), ["notes/taken"])
    assert notes["tools"] == []
    ((seam, calls, failures),) = ((one["seam"], one["calls"], one["failures"]) for one in notes["seams"])
    assert (seam, calls, failures) == ("agent/prompt-submit", 1, 0)
    assert (x["tools"], x["seams"]) == (["z", "a"], [])


async def test_plugins_of_installed_packages_are_loaded_unless_they_are_switched_off(place: Place) -> None:
    site = place.root / "site"
    plugin_package(site, "zoo", "bear")
    command = ("env", f"PYTHONPATH={site}", *SERVE)

    async def names() -> list[str]:
        async with place.daemon(command) as client:
            return [one["plugin"] for one in (await client.health()).get("plugins", [])]

    assert await names() == ["refold", "bear"]
    place.configure("plugins.entry_points = false")
    assert await names() == ["refold"]


async def test_a_workspace_brings_no_plugin(place: Place) -> None:
    """Invariant: Neither a workspace nor a client's options name a plugin; what one prints reaches no client.

    A package that lies in the folder where the daemon runs, and options of a client: neither may run code.
    """
    plugin_package(place.workspace, "zoo", "bear", text="1 / 0")
    async with place.daemon(("env", f"--chdir={place.workspace}", *SERVE)) as client:
        assert [one["plugin"] for one in (await client.health()).get("plugins", [])] == ["refold"]
    options: dict[str, Any] = {"plugins": {"paths": [str(place.root / "none.py")]}}
    with pytest.raises(RpcError, match="plugins: this parameter is not taken here"):
        async with place.daemon(**options):
            pass


@pytest.mark.parametrize("number", [signal.SIGTERM, None])
async def test_a_plugin_that_never_ends_its_import_keeps_neither_the_connection_nor_the_process(
    place: Place, number: signal.Signals | None
) -> None:
    pipe = place.root / "pipe"
    os.mkfifo(pipe)
    path = write_plugin(place, "slow", f"open({str(pipe)!r}, 'w').close()\nopen({str(pipe)!r}).read()\n")
    place.script(SAY, more=named(path))
    async with place.daemon() as client:
        opening = asyncio.create_task(client.open_session(cwd=place.workspace))
        with await asyncio.to_thread(open, pipe) as reader:
            assert reader.read() == ""  # it is being imported
        with pytest.raises(RpcError, match=r"\$/none"):
            await client.request("$/none")  # the connection is served meanwhile
        if number is not None:
            client.connection.process.send_signal(number)
            assert await client.connection.process.wait() in (0, 1)
        opening.cancel()


async def test_a_plugin_that_takes_too_long_to_load_is_told_and_is_tried_again_when_it_has_ended(place: Place) -> None:
    pipe = place.root / "pipe"
    os.mkfifo(pipe)
    path = write_plugin(place, "slow", f"open({str(pipe)!r}).read()\ndef register(registry):\n    pass\n")
    place.script(SAY, more=f"{named(path)}load_timeout_s = 0.5\n")
    async with place.daemon() as client:
        both = [client.open_session(cwd=place.workspace), client.open_session(cwd=place.workspace)]
        for refused in await asyncio.gather(*both, return_exceptions=True):
            assert isinstance(refused, RpcError)
            assert f"the plugin of {path} cannot be used: it is still being loaded after 0.5 s" in str(refused)
            assert "plugins.load_timeout_s" in str(refused)
        with await asyncio.to_thread(open, pipe, "w"):
            pipe.rename(place.root / "old")
            pipe.touch()
        while True:
            try:
                session = await new_session(client, place)
            except RpcError:  # the thread that was left behind has not ended yet
                continue
            break
        await client.prompt(session, "go")
