"""Stories of several daemons, of readers, and of daemons that end."""

from __future__ import annotations

from typing import Final

from tests.support.chat_stream import reply, text
from tests.support.daemons import nothing_becomes_durable
from tests.support.transcripts_of_inputs import LISTING
from tests.support.transcripts_stage import Tale


async def second_writer(tale: Tale) -> None:
    """Two daemons that want to write the same session

    The second is refused and told who holds it; once the first gives it back it can have it, as the next instance. Rule:
    one writer per session across processes.
    """
    tale.script({"text": "Fine."})
    async with tale.daemon("A") as a, tale.daemon("B") as b:
        session = await a.begin()
        await a.turn(session, "one")
        await b.ask("session/open", session=session)
        await b.start(session, "mine")
        await a.ask("session/close", session=session)
        await b.ask("session/open", session=session)
        await b.follow(session, after="tail")
        await b.turn(session, "two")
        await a.ask("session/open", session=session)
        await b.proves(session, equal=2)


async def follower(tale: Tale) -> None:
    """A second process that follows a session while the first one writes it

    It gets the same events under the same writer, once they are on disk, and needs no right to write. Rule: subscribing
    to a session owned by another process.
    """
    gate = tale.gate()
    await tale.plays([text("Half a"), gate, reply(" and the rest.")])
    async with tale.daemon("A") as a, tale.daemon("B") as b:
        session = await a.begin()
        await a.start(session, "Tell me a story.")
        await a.says("Half a")
        await b.follow(session)
        await b.says("Half a")
        gate.open()
        await b.grows()
        await a.grows()
        await b.proves(session, equal=1)


async def no_work_no_record(tale: Tale) -> None:
    """A session that is opened and closed without work

    It has a title and even a subscriber, and leaves nothing behind: nobody finds it afterwards. Rule: a session that
    never received work leaves no record.
    """
    tale.script()
    async with tale.daemon("A") as a:
        session = await a.begin(title="Never used")
        await a.ask("session/read", session=session, view="events")
        await a.ask("session/close", session=session)
        await a.ask("session/open", session=session)
        await a.ask("session/list", limit=10)
        await a.ask("log/verify", session=session)


async def reconnect(tale: Tale) -> None:
    """A client that comes back with a cursor

    The seq that it had last and the writer under which it learnt of it are enough to go on in another process, without a
    gap and without an event twice; a cursor past the end is told where the end is. Rule: a cursor is a seq (protocol.md
    section 3, rules 1 and 2).
    """
    tale.script({"text": "One."}, {"text": "Two."})
    async with tale.daemon("A") as a:
        session = await a.begin()
        await a.turn(session, "one")
        cursor = a.events.cursor
        await a.turn(session, "two")
    async with tale.daemon("B") as b:
        await b.follow(session, after=cursor.after, writer=cursor.writer)
        await b.grows()
        await b.follow(session, after=100)
        await b.proves(session, equal=2)


async def diverged_cursor(tale: Tale) -> None:
    """A client that was told more than its daemon kept

    Events were told before they were on disk, and then the daemon was killed: other events have their numbers now. The
    client is told where the logs part, and goes on from what it knew to be durable. Rule: a seq names an event for ever
    only up to durable.
    """
    gate = tale.gate()
    await tale.plays([text("Kept"), gate, text(" and lost"), None], [reply("Something else.")])
    async with tale.daemon("A") as a:
        session = await a.begin()
        await a.start(session, "Tell me a story.")
        await a.says("Kept")
        tale.say("From now on nothing gets to the disk: another process holds the store.")
        async with nothing_becomes_durable(tale.place):
            gate.open()
            told = await a.says(" and lost", durable=False)
            await a.killed()
        known, writer = a.events.cursor.after, a.events.writer
    async with tale.daemon("B") as b:
        await b.follow(session, after=told[-1]["seq"], writer=writer)
        await b.ask("session/open", session=session)
        started = await b.start(session, "Go on.")
        await b.waits(session, input=started["input"])
        await b.follow(session, after=told[-1]["seq"], writer=writer)
        await b.follow(session, after=known, writer=writer)
        await b.grows(turn=2)
        await b.proves(session, equal=2)


async def shutdown_in_turn(tale: Tale) -> None:
    """A client that shuts its daemon down while a turn runs

    The turn is cancelled, what was said is kept, and the log is balanced when the process is gone; the exit code says
    that all was in good order. Rule: lifecycle as in LSP.
    """
    await tale.plays([text("Half a"), None])
    async with tale.daemon("A") as a:
        session = await a.begin()
        await a.start(session, "Tell me a story.")
        await a.says("Half a")
    async with tale.daemon("B") as b:
        await b.follow(session, after=8)
        await b.grows()
        await b.proves(session, equal=1)


async def end_of_input(tale: Tale) -> None:
    """An editor that is gone without a word while a turn runs

    The daemon finishes the step with its tools, begins no other, and ends with code 1; the next one needs no closers and
    writes nothing when it opens the session. Rule: onDisconnect finish.
    """
    gate = tale.gate()
    await tale.plays([text("I look."), gate, LISTING], [reply("One file.")])
    async with tale.daemon("A") as a:
        session = await a.begin()
        await a.start(session, "How many files?")
        await a.says("I look.")
        await a.left()
        gate.open()
        await a.ends()
    async with tale.daemon("B") as b:
        await b.ask("session/open", session=session)
        await b.follow(session, after=8)
        await b.grows()
        await b.turn(session, "Go on.")
        await b.proves(session, equal=2)


async def end_of_input_cancels(tale: Tale) -> None:
    """An editor that is gone without a word, and wanted turns to be cancelled

    The step is not finished: what was said is kept and the turn ends at once. Rule: onDisconnect cancel (protocol.md
    section 1).
    """
    await tale.plays([text("Half a"), None])
    async with tale.daemon("A", onDisconnect="cancel") as a:
        session = await a.begin()
        await a.start(session, "Tell me a story.")
        await a.says("Half a")
        await a.left()
        await a.ends()
    async with tale.daemon("B") as b:
        await b.follow(session, after=8)
        await b.grows()
        await b.proves(session, equal=1)


async def rename(tale: Tale) -> None:
    """A session that gets a title

    The title is an event like any other, the last one wins, and lists find the session by it in whatever case. Rule:
    session/title.
    """
    tale.script({"text": "One."})
    async with tale.daemon("A") as a:
        session = await a.begin(title="Animals")
        await a.turn(session, "Which animal sleeps?")
        await a.ask("session/rename", session=session, title="Zebras")
        await a.grows("session/title", title="Zebras")
        await a.ask("session/rename", session=session, title="")
        await a.ask("session/list", limit=10, text="zebra")
        await a.proves(session, equal=1)


STORIES: Final = (
    second_writer,
    follower,
    no_work_no_record,
    reconnect,
    diverged_cursor,
    shutdown_in_turn,
    end_of_input,
    end_of_input_cancels,
    rename,
)
