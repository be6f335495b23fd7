"""Stories of a history that makes room: on request, by pressure, after an overflow, and when it comes to nothing."""

from __future__ import annotations

import asyncio
from typing import Final

from tests.support.chat_stream import reply, text
from tests.support.transcripts_stage import Tale

STORY: Final = "It is a long story of a zebra. " * 60
REFUSAL: Final = '{"error": {"code": "context_length_exceeded", "message": "this model takes 8192 tokens"}}'


async def compaction_on_request(tale: Tale) -> None:
    """A history that is summed up because somebody asked for it

    The summary call replays header and region and puts its instructions last; summary, replacing message and end stand
    together; the next request begins with the summary, and people see everything as before, with a marker. Rule: lands in
    one transaction.
    """
    await tale.plays([reply(STORY)], [reply("The zebra sleeps.")], [reply("Yes.")])
    tale.window(100_000)
    async with tale.daemon("A") as a:
        session = await a.begin()
        await a.turn(session, "Tell me a story.")
        await a.ask("session/compact", session=session, instructions="Keep the animals.")
        await a.grows("compact/end")
        await a.turn(session, "Does it sleep?")
        await a.ask("session/read", session=session, view="surface")
        await a.ask("session/read", session=session, view="transcript")
        await a.proves(session, equal=3)


async def compaction_by_pressure(tale: Tale) -> None:
    """A history that would reach the threshold with the next request

    It is compacted at the pre-step, before the step's boundary; the retained tail stays as it is. Rule: triggers, region.
    """
    await tale.plays([reply(STORY)], [reply(STORY)], [reply("The zebra sleeps.")], [reply("Yes.")])
    tale.window(6_000)
    async with tale.daemon("A") as a:
        session = await a.begin()
        await a.turn(session, "Tell me a story.")
        await a.turn(session, "And another one.")
        await a.turn(session, "And? " + "Tell me more. " * 40)
        await a.ask("session/read", session=session, view="surface")
        await a.proves(session, equal=4)


async def compaction_after_overflow(tale: Tale) -> None:
    """A request that does not fit, and the one after a compaction that does

    The step ends as overflow, the compaction stands between steps, and the next step has a boundary of its own; a second
    refusal in the turn would end it. Rule: an overflow answer of the provider, between steps, once per turn.
    """
    long = {"text": STORY * 3}
    tale.script(long, long, long, long, {"status": 400, "text": REFUSAL}, {"text": "The zebra sleeps."}, {"text": "Yes."})
    async with tale.daemon("A") as a:
        session = await a.begin()
        for number in range(1, 5):
            await a.start(session, "Tell me a story.")
            await a.waits(session, turn=number)
        await a.follow(session, after="tail")
        await a.turn(session, "Does it sleep?")
        await a.proves(session, equal=7)


async def compaction_refused(tale: Tale) -> None:
    """A summary that is blank, twice

    One extra attempt is made with the same bytes; then the compaction ends with an error, the surface is what it was, and
    the next turn goes on. Rule: a failure leaves the surface untouched.
    """
    await tale.plays([reply(STORY)], [reply(" ")], [reply(" ")], [reply("Yes.")])
    tale.window(100_000)
    async with tale.daemon("A") as a:
        session = await a.begin()
        await a.turn(session, "Tell me a story.")
        await a.ask("session/compact", session=session)
        await a.grows("compact/end")
        await a.turn(session, "Does it sleep?")
        await a.proves(session, equal=4)


async def compaction_killed(tale: Tale) -> None:
    """A daemon that is killed while a summary is written

    The next opener closes the compaction; nothing is locked, and the surface is what it was. Rule: an unmatched
    compact/start is never a lock, closers (section 8).
    """
    gate = tale.gate()
    await tale.plays([reply(STORY)], [text("The zeb"), gate, None], [reply("The zebra sleeps.")])
    tale.window(100_000)
    async with tale.daemon("A") as a:
        session = await a.begin()
        await a.turn(session, "Tell me a story.")
        compacting = asyncio.ensure_future(a.client.compact(session))
        await a.grows("request/sent", purpose="summary")
        await asyncio.to_thread(gate.reached.wait)  # what is sent is on disk
        await a.killed()
        await asyncio.wait((compacting,))
        compacting.exception()
    async with tale.daemon("B") as b:
        await b.ask("session/open", session=session)
        await b.follow(session, after="tail")
        await b.ask("session/read", session=session, view="surface")
        await b.ask("session/compact", session=session)
        await b.grows("compact/end")
        await b.proves(session, equal=3)


STORIES: Final = (
    compaction_on_request,
    compaction_by_pressure,
    compaction_after_overflow,
    compaction_refused,
    compaction_killed,
)
