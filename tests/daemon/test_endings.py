"""The end of a daemon whose turn runs: what of the turn still happens, what is on disk, the exit code. Case D-01."""

from __future__ import annotations

import signal
import sys
from typing import Any

import pytest

from refold_client import Client
from refold_protocol.errors import SessionNotFoundError
from tests.support.chat_stream import call, calls, chunk, reply, text
from tests.support.daemons import SERVE, Place, endless_search, gone, new_session, text_so_far, tool_process, types, until
from tests.support.fake_provider import FakeProvider, Gate, answer
from tests.support.processes import Process

pytestmark = pytest.mark.anyio

DISPOSED: Any = {"kind": "aborted", "cause": {"kind": "disposed"}}
LIST = calls(call(0, "c0", "list_files", "{}")) + chunk({}, "tool_calls")


async def half_said(client: Client, place: Place) -> str:
    """A session whose first turn runs and has said `Half`."""
    session = await new_session(client, place)
    events = await client.subscribe(session)
    await client.start_turn(session, "go")
    await text_so_far(events, "Half")
    return session


async def leave(client: Client) -> None:
    """Close the daemon's input, like an editor that ended."""
    assert client.connection.process.stdin is not None
    await client.connection.process.stdin.aclose()


async def reason(place: Place, session: str) -> Any:
    """How the session's last turn ended, after its log was found whole and one more prompt was run in it."""
    recorded = await place.recorded(session)
    assert recorded[-1]["type"] == "turn/end"
    place.script({"text": "Here I am."})
    async with place.daemon() as client:
        await client.open_session(session)
        assert (await client.prompt(session, "Are you there?"))["data"]["reason"] == {"kind": "completed"}
    after = await place.recorded(session)
    assert after[: len(recorded)] == recorded
    assert types(after[len(recorded) :])[0] == "instance/start", "no closers were needed"
    await place.verify(session)
    told = recorded[-1]["data"]["reason"]
    told.get("cause", {}).pop("reason", None)
    return told


async def test_d01a_a_step_is_finished_with_its_tools_and_no_other_begins(place: Place) -> None:
    gate = Gate()
    async with FakeProvider(answer(text("Half"), gate, LIST)) as provider:
        place.provider(provider.base_url)
        async with place.daemon() as client:
            session = await half_said(client, place)
            await leave(client)
            gate.open()
            assert await gone(client) == 1
    assert len(provider.requests) == 1
    recorded = await place.recorded(session)
    assert types(recorded)[-5:] == ["assistant/message", "tool/call", "tool/result", "step/end", "turn/end"]
    assert recorded[-3]["data"]["content"][0]["text"] == "animals.txt"
    assert await reason(place, session) == DISPOSED


async def test_d01a_a_last_step_that_is_finished_completes_its_turn(place: Place) -> None:
    gate = Gate()
    async with FakeProvider(answer(text("Half"), gate, reply(" and half."))) as provider:
        place.provider(provider.base_url)
        async with place.daemon() as client:
            session, other = await half_said(client, place), await new_session(client, place)
            await leave(client)
            gate.open()
            assert await gone(client) == 1
        with pytest.raises(SessionNotFoundError):
            await place.recorded(other)
    assert await reason(place, session) == {"kind": "completed"}


async def test_d01a_with_cancel_the_turn_ends_at_once_and_keeps_what_was_said(place: Place) -> None:
    async with FakeProvider(answer(text("Half"), end="hang")) as provider:
        place.provider(provider.base_url)
        async with place.daemon(onDisconnect="cancel") as client:
            session = await half_said(client, place)
            await leave(client)
            assert await gone(client) == 1
    recorded = await place.recorded(session)
    assert recorded[-3]["data"]["content"] == [{"type": "text", "text": "Half"}]
    assert await reason(place, session) == DISPOSED


@pytest.mark.parametrize("by", ["end of input", "signal"])
async def test_d01_a_running_tool_is_gone_with_the_daemon(place: Place, by: str) -> None:
    endless_search(place)
    wanted = calls(call(0, "c0", "search_text", '{"pattern":"(a+)+$","regex":true}')) + chunk({}, "tool_calls")
    async with FakeProvider(answer(text("Half"), wanted)) as provider:
        place.provider(provider.base_url)
        async with place.daemon(onDisconnect="cancel") as client:
            session = await half_said(client, place)
            await until(await client.subscribe(session), "tool/call")
            tool = await tool_process(client)
            if by == "signal":
                client.connection.process.terminate()
            else:
                await leave(client)
            assert await gone(client) == 1
            await tool.ended()
    recorded = await place.recorded(session)
    assert recorded[-3]["data"]["error"]["code"] == "TOOL_OUTCOME_UNKNOWN"
    assert await reason(place, session) == DISPOSED


async def test_d01e_an_input_that_ends_inside_a_frame_is_an_end_like_another(place: Place) -> None:
    async with FakeProvider(answer(text("Half"), end="hang")) as provider:
        place.provider(provider.base_url)
        async with place.daemon(onDisconnect="cancel") as client:
            session = await half_said(client, place)
            assert client.connection.process.stdin is not None
            await client.connection.process.stdin.send(b'Content-Length: 100\r\n\r\n{"jsonrpc":"2.0",')
            await leave(client)
            assert await gone(client) == 1
    assert await reason(place, session) == DISPOSED


async def test_a_client_that_shuts_down_in_good_order_cancels_the_turn_and_gets_0(place: Place) -> None:
    async with FakeProvider(answer(text("Half"), end="hang")) as provider:
        place.provider(provider.base_url)
        async with place.daemon() as client:
            session = await half_said(client, place)
            assert await client.close() == 0
    assert await reason(place, session) == DISPOSED


EDITOR = "import subprocess, sys; sys.exit(subprocess.Popen(sys.argv[1:]).wait())"


def begun(process: Process, place: Place, **params: Any) -> Process:
    """Begin a connection from the wire."""
    options = {"store": str(place.store)}
    process.initialize(initializationOptions=options | params.pop("options", {}), **params)
    return process


def half_said_to(process: Process, place: Place) -> str:
    """The same as `half_said`, on such a connection."""
    session: str = process.call("session/open", {"cwd": str(place.workspace)})["session"]
    subscription = process.call("event/subscribe", {"session": session, "after": -1})["subscription"]
    process.call("turn/start", {"session": session, "content": [{"type": "text", "text": "go"}]})
    said = ""
    while said != "Half":
        while not process.messages:
            assert process.read()
        message = process.messages.pop(0)
        notice = message["params"]
        if message["method"] == "session/events" and notice["subscription"] == subscription:
            said += "".join(event["data"].get("chunk", {}).get("text", "") for event in notice["events"])
    return session


async def test_d01b_the_death_of_the_editor_ends_the_turn_although_its_pipe_stays_open(place: Place) -> None:
    with FakeProvider(answer(text("Half"), end="hang")) as provider:
        place.provider(provider.base_url)
        with Process([sys.executable, "-c", EDITOR, *SERVE], place.daemon_env) as editor:
            begun(editor, place, processId=editor.popen.pid, options={"onDisconnect": "cancel"})
            session = half_said_to(editor, place)
            editor.popen.kill()
            editor.read_to_end()
    assert await reason(place, session) == DISPOSED


async def test_d01c_a_turn_goes_on_to_the_end_of_its_step_when_nobody_reads_any_more(place: Place) -> None:
    gate = Gate()
    with FakeProvider(answer(text("Half"), gate, reply(" and half."))) as provider:
        place.provider(provider.base_url)
        with Process(SERVE, place.daemon_env) as process:
            session = half_said_to(begun(process, place), place)
            assert process.popen.stdout is not None
            assert process.popen.stderr is not None
            process.popen.stdout.close()
            process.popen.stderr.close()
            gate.open()
            assert process.popen.wait() == 1
    assert await reason(place, session) == {"kind": "completed"}


async def test_d01d_a_signal_cancels_also_while_steps_are_being_finished(place: Place) -> None:
    with FakeProvider(*[answer(text("Half"), end="hang")] * 2) as provider:
        place.provider(provider.base_url, '[log]\nlevel = "info"')
        with Process(SERVE, place.daemon_env) as process:
            begun(process, place)
            sessions = [half_said_to(process, place) for _ in range(2)]
            process.close_input()
            process.error_line(b"the connection ends: inputEnded")
            process.popen.send_signal(signal.SIGTERM)
            assert process.wait() == 1
    assert [await reason(place, session) for session in sessions] == [DISPOSED] * 2


async def test_d01a_sessions_are_told_together_to_stop_after_their_steps(place: Place) -> None:
    """A long step in one of them keeps no other from ending."""
    long, short = Gate(), Gate()
    played = (answer(text("Half"), long, reply(" and half.")), answer(text("Half"), short, LIST))
    with FakeProvider(*played) as provider:
        place.provider(provider.base_url, '[log]\nlevel = "info"')
        with Process(SERVE, place.daemon_env) as process:
            begun(process, place)
            first, second = (half_said_to(process, place) for _ in range(2))
            process.close_input()
            process.error_line(b"the connection ends: inputEnded")
            async with place.daemon() as other:
                events = await other.subscribe(second)
                short.open()
                assert (await until(events, "turn/end"))[-1]["data"]["reason"]["cause"]["kind"] == "disposed"
            long.open()
            assert process.wait() == 1
    assert await reason(place, first) == {"kind": "completed"}
