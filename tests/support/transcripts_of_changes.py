"""Stories of what may change around a history: headers, tools, prefixes, plugins, approvals, forks, compaction.

A story of one of these is a function here and a row in STORIES.
"""

from __future__ import annotations

from typing import Final

from tests.support.chat_stream import call, calls, chunk, reply, text
from tests.support.transcripts_stage import Tale


async def configure_between_turns(tale: Tale) -> None:
    """Settings that change between two turns

    The next request has the new model and effort as a change of the header in force, and the one after it changes
    nothing. Rule: an instance's first request after session/settings resolves its call configuration anew; the header
    is compared by value.
    """
    await tale.plays([reply("One.")], [reply("Two.")], [reply("Three.")])
    async with tale.daemon("A") as a:
        session = await a.begin()
        await a.turn(session, "one")
        await a.ask("session/configure", session=session, patch={"model": "fake/large", "effort": "high"})
        await a.turn(session, "two")
        await a.turn(session, "three")
        await a.ask("session/configure", session=session, patch={"model": "nobody/large"})
        await a.proves(session, equal=3)


async def configure_during_turn(tale: Tale) -> None:
    """Settings that change while a turn runs

    The step that runs has its request; the turn's next step has the new one. Rule: the first request after
    session/settings.
    """
    gate = tale.gate()
    listing = calls(call(0, "c1", "list_files", "{}")) + chunk({}, "tool_calls")
    await tale.plays([text("I look."), gate, listing], [reply("One file.")])
    async with tale.daemon("A") as a:
        session = await a.begin()
        await a.start(session, "How many files?")
        await a.says("I look.")
        await a.ask("session/configure", session=session, patch={"model": "fake/large"})
        gate.open()
        await a.grows()
        await a.proves(session, equal=2)


async def tools_of_the_next_instance(tale: Tale) -> None:
    """A session that goes on in a daemon with other tools

    The tools that it had stay where they are, also the one that is gone, whose call gets an error; a new one stands
    behind them. Rule: tool lists live across instances, a vanished tool keeps its schema.
    """
    listing = calls(call(0, "c1", "list_files", "{}")) + chunk({}, "tool_calls")
    tale.tools("list_files", "read_file")
    await tale.plays([reply("One.")], [listing], [reply("I cannot.")])
    async with tale.daemon("A") as a:
        session = await a.begin()
        await a.turn(session, "one")
        seq = a.events.last
    tale.tools("search_text", "read_file")
    async with tale.daemon("B") as b:
        await b.ask("session/open", session=session)
        await b.follow(session, after=seq)
        await b.turn(session, "List the files.")
        await b.proves(session, equal=3)


async def permissions_change(tale: Tale) -> None:
    """Permissions that change, between turns and in one

    The model is told by a message of its history, which stands where every injection would; the system text stays as it
    is, so that the cache keeps all that was read before. Rule: settings that change are told by a context/message.
    """
    gate = tale.gate()
    listing = calls(call(0, "c1", "list_files", "{}")) + chunk({}, "tool_calls")
    await tale.plays([reply("One.")], [text("I look."), gate, listing], [reply("One file.")])
    async with tale.daemon("A") as a:
        session = await a.begin()
        await a.turn(session, "one")
        await a.ask("session/configure", session=session, patch={"permissions": {"mode": "deny"}})
        await a.grows()
        await a.start(session, "How many files?")
        await a.says("I look.")
        await a.ask("session/configure", session=session, patch={"permissions": {"mode": "ask"}})
        gate.open()
        await a.grows()
        await a.ask("session/read", session=session, view="surface")
        await a.proves(session, equal=3)


async def fork_in_an_open_turn(tale: Tale) -> None:
    """A session that is forked while its turn runs

    The fork begins with the same events; whoever opens it for writing first closes the turn as forked and says so with
    its first instance. What waits in the parent does not wait in the fork, and its first request begins with the bytes of
    the parent's last one. The parent knows nothing of it. Rule: fork at any seq.
    """
    gate = tale.gate()
    await tale.plays([reply("One.")], [text("Half a"), gate, reply(" story.")], [reply("Another.")], [reply("Next.")])
    async with tale.daemon("A") as a:
        session = await a.begin(title="A story")
        await a.turn(session, "one")
        await a.start(session, "Tell me a story.")
        cut = (await a.says("Half a"))[-1]["seq"]
        await a.start(session, "And then?", ifRunning="queue")
        child = (await a.ask("session/fork", session=session, at=cut))["session"]
        await a.ask("session/read", session=child, view="transcript")
        gate.open()
        await a.grows()
        await a.grows()
        await a.ask("session/open", session=child)
        await a.follow(child, after=cut)
        await a.grows()
        await a.turn(child, "Tell me another one.")
        await a.ask("request/explain", session=child, turn=3, step=1)
        await a.proves(child, equal=3)
        await a.proves(session, equal=3)


async def deleted_while_followed(tale: Tale) -> None:
    """A session that is deleted while somebody in another process follows it

    Who follows is told that it is gone, and that is the end of the subscription; a fork keeps what it inherited. Rule:
    deleting a parent keeps what children need.
    """
    tale.script({"text": "One."}, {"text": "Two."})
    async with tale.daemon("A") as a, tale.daemon("B") as b:
        session = await a.begin()
        await a.turn(session, "one")
        child = (await a.ask("session/fork", session=session, title="Kept"))["session"]
        await b.follow(session)
        await b.grows()
        trouble = b.client.listen("session/trouble")
        await b.ask("session/delete", session=session)
        await a.ask("session/delete", session=session)
        b.hears("session/trouble", await anext(trouble))
        await b.ask("session/open", session=session)
        await b.ask("session/list", limit=10)
        await b.ask("session/open", session=child)
        await b.follow(child, after="tail")
        await b.turn(child, "two")
        await b.proves(child, equal=2)


STORIES: Final = (
    configure_between_turns,
    configure_during_turn,
    deleted_while_followed,
    fork_in_an_open_turn,
    permissions_change,
    tools_of_the_next_instance,
)
