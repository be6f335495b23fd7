"""Plugins that raise what ends tasks and processes, wherever they are called: it ends neither the daemon nor a turn.

Invariant: What ends tasks and processes, raised by a plugin anywhere, ends neither the daemon nor a turn; a person's Ctrl-C
in a plugin's frame still ends the command.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence

import pytest

from refold_client import RpcError
from tests.support.commands import finish, start, there
from tests.support.daemons import Json, Place, new_session, until
from tests.support.plugin_files import named, results, write_plugin

pytestmark = pytest.mark.anyio

ENDS = ("KeyboardInterrupt", "SystemExit", "GeneratorExit", "asyncio.CancelledError")

CALL: Json = {"text": "I try.", "calls": [{"name": "z", "arguments": {}, "id": "c0"}]}
SAY: Json = {"text": "Done."}

PLUGIN = """
import asyncio
from msgspec import Struct
from refold_server.plugins import ASSEMBLE, FLUSH, OBSERVE, POST_EXECUTE, PRE_STEP, REQUEST, SESSION_PREFIX, TURN_STOP, tool

class Nothing(Struct, frozen=True, forbid_unknown_fields=True):
    pass

async def ends(*given):
    raise END

def ends_at_once(*given):
    raise END

async def run(context, params):
    await asyncio.wait([asyncio.create_task(ends())])
    asyncio.create_task(ends())
    asyncio.get_running_loop().call_soon(ends_at_once)
    raise END

def register(registry):
    for seam in (ASSEMBLE, PRE_STEP, REQUEST, SESSION_PREFIX, POST_EXECUTE, TURN_STOP):
        registry.on(seam, ends)
    registry.on(OBSERVE, ends_at_once)
    registry.on(FLUSH, ends_at_once)
    registry.tool(tool("z", "Ends.", Nothing, run, read_only=True))
"""

SKIPPED = {
    "agent/pre-step",
    "agent/request",
    "agent/session-prefix",
    "agent/turn-stop",
    "log/observe",
    "session/flush",
    "system-prompt/assemble",
    "tools/post-execute",
}


def assert_contained(events: Sequence[Json], end: str) -> None:
    """The turn went on, each failure is the plugin's, and the tool's is its result."""
    assert events[-1]["data"]["reason"] == {"kind": "completed"}
    failures = [event["data"] for event in events if event["type"] == "plugin/failed"]
    assert {failure["plugin"] for failure in failures} == {"ends"}
    assert {failure["seam"] for failure in failures} == SKIPPED
    (result,) = results(list(events))
    assert (result["isError"], result["error"]["code"]) == (True, "TOOL_FAILED")
    assert result["error"]["name"] == end.removeprefix("asyncio.")


@pytest.mark.parametrize("end", ENDS)
async def test_a_daemon_goes_on_and_answers(place: Place, end: str) -> None:
    place.script(CALL, SAY, SAY, more=named(write_plugin(place, "ends", PLUGIN.replace("END", end))))
    async with place.daemon() as client:
        session = await new_session(client, place)
        events = await client.subscribe(session)
        started = await client.start_turn(session, "go")
        assert_contained(await until(events, "turn/end", turn=started["turn"]), end)
        await client.prompt(session, "and again")
        (row,) = (one for one in (await client.health()).get("plugins", []) if one["plugin"] == "ends")
        assert all(seam["calls"] == seam["failures"] for seam in row["seams"])
    assert client.connection.process.returncode == 0
    shown = await place.verify(session)
    assert (shown["equal"], shown["differences"]) == (3, [])


@pytest.mark.parametrize("end", ENDS)
async def test_a_command_brings_its_turn_to_its_end(place: Place, end: str) -> None:
    place.script(CALL, SAY, more=named(write_plugin(place, "ends", PLUGIN.replace("END", end))))
    done = await asyncio.to_thread(there, place, "run", "go")
    assert done.code == 0
    assert_contained(await place.recorded(done.session), end)


@pytest.mark.parametrize("end", ENDS)
async def test_one_that_cannot_be_loaded_for_it_fails_what_needs_it(place: Place, end: str) -> None:
    path = write_plugin(place, "ends", f"import asyncio\ndef register(registry):\n    raise {end}\n")
    place.script(SAY, more=named(path))
    async with place.daemon() as client:
        for _ in range(2):
            with pytest.raises(RpcError, match=f"its `register` failed: {end.removeprefix('asyncio.')}"):
                await client.open_session(cwd=place.workspace)
        path.write_text("def register(registry):\n    pass\n")
        await client.prompt(await new_session(client, place), "go")


@pytest.mark.parametrize("end", ENDS)
async def test_a_command_that_only_reads_gives_what_it_reads(place: Place, end: str) -> None:
    text = (
        "import asyncio\nfrom refold_server.plugins import SESSION_PREFIX\n"
        f"async def ends():\n    raise {end}\n"
        "async def begin(composing, next):\n"
        "    await asyncio.wait([asyncio.create_task(ends())])\n"
        "    return await next()\n"
        "def register(registry):\n    registry.on(SESSION_PREFIX, begin)\n"
    )
    place.script(SAY, more=named(write_plugin(place, "ends", text)))
    done = await asyncio.to_thread(there, place, "prefix")
    assert done.code == 0
    assert done.lines[0].startswith("contributor")


async def test_a_person_can_interrupt_a_command_that_a_plugin_keeps_to_itself(place: Place) -> None:
    """The signal is raised in the plugin's own frame: it is no fault of the plugin's there."""
    pipe = place.root / "pipe"
    os.mkfifo(pipe)
    keeps = (
        "from refold_server.plugins import SESSION_PREFIX\n"
        "async def keep(composing, next):\n"
        f"    open({str(pipe)!r}, 'w').close()\n"
        f"    open({str(pipe)!r}).read()\n"
        "def register(registry):\n"
        "    registry.on(SESSION_PREFIX, keep)\n"
    )
    place.script(SAY, more=named(write_plugin(place, "keeps", keeps)))
    process = start(place, "prefix")
    with await asyncio.to_thread(open, pipe) as reader:
        assert reader.read() == ""  # the handler is at work
    process.send_signal(signal.SIGINT)
    done = await asyncio.to_thread(finish, process)
    assert (done.code, done.out, done.err) == (6, b"", "")
