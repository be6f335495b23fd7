"""Stories of daemons that are killed, and of what others find then."""

from __future__ import annotations

from typing import Final

from tests.support.chat_stream import call, calls, chunk, reply, text
from tests.support.daemons import endless_search, tool_process
from tests.support.transcripts_of_inputs import LISTING
from tests.support.transcripts_stage import Tale


async def kill_in_stream(tale: Tale) -> None:
    """A daemon that is killed while the model speaks, and the next one that goes on

    Opening the session for writing closes the open turn with the events that the dead daemon would have written, and
    flushes them before it answers; the second instance begins behind them and records its header anew. Rule: closers
    precede instance/start, the resume snapshot.
    """
    await tale.plays([text("Half a"), None], [reply("Sorry, where was I?")])
    async with tale.daemon("A") as a:
        session = await a.begin()
        await a.start(session, "Tell me a story.")
        await a.says("Half a")
        await a.killed()
    async with tale.daemon("B") as b:
        await b.ask("session/open", session=session)
        await b.follow(session, after=8)
        await b.grows()
        await b.turn(session, "Go on.")
        await b.ask("session/read", session=session, view="surface")
        await b.proves(session, equal=2)


async def kill_in_tools(tale: Tale) -> None:
    """A daemon that is killed while its tools run

    The call that had its result keeps it; of the one that ran nobody knows the outcome, and the closers say so, because a
    model must get an answer to every call. Rule: one error result per unanswered call.
    """
    endless_search(tale.place)
    tale.say("The workspace has a file on which the search (a+)+$ never ends.")
    wanted = [call(0, "c1", "list_files", "{}"), call(1, "c2", "search_text", '{"pattern":"(a+)+$","regex":true}')]
    await tale.plays([calls(*wanted) + chunk({}, "tool_calls")], [reply("Never mind.")])
    async with tale.daemon("A") as a:
        session = await a.begin()
        await a.start(session, "Search for it.")
        told = await a.grows("tool/result", callId="c1")
        await a.events.wait_durable(told[-1]["seq"])
        child = await tool_process(a.client)
        await a.killed()
        await child.ended()
    async with tale.daemon("B") as b:
        await b.ask("session/open", session=session)
        await b.follow(session, after=told[-1]["seq"])
        await b.grows()
        await b.turn(session, "Go on.")
        await b.ask("session/read", session=session, view="transcript")
        await b.proves(session, equal=2)


async def kill_behind_tools(tale: Tale) -> None:
    """A daemon that is killed in the step behind its tools

    The first step is whole and stays as it is; of the second, what was said is kept. The next turn's request has all of
    it. Rule: interrupted_turn_closers.
    """
    await tale.plays([LISTING], [text("There is"), None], [reply("One file.")])
    async with tale.daemon("A") as a:
        session = await a.begin()
        await a.start(session, "How many files?")
        await a.says("There is")
        await a.killed()
    async with tale.daemon("B") as b:
        await b.ask("session/open", session=session)
        await b.follow(session, after="tail")
        await b.turn(session, "Go on.")
        await b.ask("session/read", session=session, view="transcript")
        await b.proves(session, equal=3)


async def kill_with_pending_inputs(tale: Tale) -> None:
    """Prompts that waited when their daemon was killed

    The next daemon lists them and runs none by itself: one is started, one is withdrawn, a new prompt leaves what waits
    alone. Rule: after a resume nothing pending runs by itself.
    """
    await tale.plays([text("Half a"), None], [reply("Fine.")], [reply("The second, then.")])
    async with tale.daemon("A") as a:
        session = await a.begin()
        await a.start(session, "first")
        await a.says("Half a")
        second = await a.start(session, "second", ifRunning="queue")
        third = await a.start(session, "third", ifRunning="queue")
        await a.killed()
    async with tale.daemon("B") as b:
        opened = await b.ask("session/open", session=session)
        await b.follow(session, after=opened["tail"])
        await b.turn(session, "Something else first.")
        await b.ask("turn/start", session=session, input=second["input"])
        await b.grows()
        await b.ask("input/withdraw", session=session, input=third["input"])
        await b.grows("input/settled")
        await b.ask("turn/start", session=session, input=second["input"])
        await b.ask("session/open", session=session)
        await b.proves(session, equal=3)


async def kill_with_pending_context(tale: Tale) -> None:
    """Things to tell the model that waited when their daemon was killed

    An injection and steering wait for a place in the history and never get one: the next daemon lists them like prompts.
    Each is started by its name, the injection as a turn without a step, the steering as a prompt; what refold has to tell
    is told anew. Rule: pending inputs are listed and offered.
    """
    await tale.plays([text("Half a"), None], [reply("Fine.")], [reply("In French: bien.")])
    async with tale.daemon("A") as a:
        session = await a.begin()
        await a.start(session, "first")
        await a.says("Half a")
        content = [{"type": "text", "text": "It rains."}]
        rain = await a.ask("session/inject", session=session, content=content, source={"kind": "client"})
        french = await a.start(session, "In French, please.", ifRunning="steer")
        await a.ask("session/configure", session=session, patch={"permissions": {"mode": "deny"}})
        await a.killed()
    async with tale.daemon("B") as b:
        opened = await b.ask("session/open", session=session)
        await b.follow(session, after=opened["tail"])
        await b.turn(session, "Go on.")
        await b.ask("turn/start", session=session, input=rain["input"])
        await b.grows()
        await b.ask("turn/start", session=session, input=french["input"])
        await b.grows()
        await b.ask("session/open", session=session)
        await b.proves(session, equal=3)


async def cold_read(tale: Tale) -> None:
    """Reading a session whose daemon was killed, without opening it

    Nobody writes: what people and models see is shown with the open turn closed, in memory alone; the events are those
    that are stored, and reading leaves them as they are. Rule: views of a log whose lease nobody holds.
    """
    await tale.plays([text("Half a"), None])
    async with tale.daemon("A") as a:
        session = await a.begin()
        await a.start(session, "Tell me a story.")
        await a.says("Half a")
        await a.ask("session/read", session=session, view="status")
        await a.killed()
    async with tale.daemon("B") as b:
        for view in ("status", "transcript", "surface", "events"):
            await b.ask("session/read", session=session, view=view)
        await b.ask("session/open", session=session, mode="read")
        await b.proves(session, equal=1)


STORIES: Final = (
    kill_in_stream,
    kill_in_tools,
    kill_behind_tools,
    kill_with_pending_inputs,
    kill_with_pending_context,
    cold_read,
)
