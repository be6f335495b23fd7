"""Stories of what arrives while something runs, and of stopping it."""

from __future__ import annotations

import asyncio
from typing import Final

from tests.support.chat_stream import call, calls, chunk, reply, text
from tests.support.daemons import endless_search, tool_process
from tests.support.transcripts_stage import Tale

LISTING: Final = calls(call(0, "c1", "list_files", "{}")) + chunk({}, "tool_calls")
"""A stream's end that calls a tool."""


async def queued_prompt(tale: Tale) -> None:
    """A prompt that waits behind a running turn

    Without a word about it a second prompt is refused while a turn runs; with `queue` it is accepted at once, runs when
    the turn is over, in a turn of its own, and can be withdrawn until then. Rule: one prompt per turn, inputs run in
    order.
    """
    gate = tale.gate()
    await tale.plays([text("One"), gate, reply(".")], [reply("Two.")])
    async with tale.daemon("A") as a:
        session = await a.begin()
        await a.start(session, "first")
        await a.says("One")
        await a.start(session, "me too")
        await a.start(session, "second", ifRunning="queue")
        third = await a.start(session, "third", ifRunning="queue")
        await a.ask("input/withdraw", session=session, input=third["input"])
        await a.grows("input/settled")
        gate.open()
        await a.grows(turn=2)
        await a.proves(session, equal=2)


async def steering_joins(tale: Tale) -> None:
    """Steering that joins a running turn

    It waits while the step is open and stands before the next one, after the results of the step that it found. Rule:
    the surface grows at three places only.
    """
    gate = tale.gate()
    await tale.plays([text("I look."), gate, LISTING], [reply("As you wish.")])
    async with tale.daemon("A") as a:
        session = await a.begin()
        await a.start(session, "Look around.")
        await a.says("I look.")
        await a.start(session, "Only at text files.", ifRunning="steer")
        gate.open()
        await a.grows()
        await a.ask("session/read", session=session, view="surface")
        await a.proves(session, equal=2)


async def steering_continues(tale: Tale) -> None:
    """Steering that comes while a turn gives its last answer

    The turn had nothing left to do, and goes on for one more step because steering waits. Rule: go on if tools ran or
    steering waits.
    """
    gate = tale.gate()
    await tale.plays([text("Done"), gate, reply(".")], [reply("In French: fini.")])
    async with tale.daemon("A") as a:
        session = await a.begin()
        await a.start(session, "Do it.")
        await a.says("Done")
        await a.start(session, "And say it in French.", ifRunning="steer")
        gate.open()
        await a.grows()
        await a.proves(session, equal=2)


async def left_over_steering(tale: Tale) -> None:
    """Steering whose turn ended before it could join

    The turn is interrupted while steering waits for its next step, which never comes; what was left over runs as a
    prompt, in a turn of its own. Rule: left-over steering runs as prompts.
    """
    await tale.plays([text("Half a"), None], [reply("Something else.")])
    async with tale.daemon("A") as a:
        session = await a.begin()
        await a.start(session, "Do it.")
        await a.says("Half a")
        await a.start(session, "Do something else.", ifRunning="steer")
        await a.ask("turn/interrupt", session=session, turn=1)
        await a.grows()
        await a.grows()
        await a.proves(session, equal=2)


async def inject_idle(tale: Tale) -> None:
    """Something the model should know, told to an idle session

    It becomes a turn of its own without a step: nothing is asked of the model, which reads it with the next prompt.
    Rule: idle inject.
    """
    tale.script({"text": "Then I look there."})
    async with tale.daemon("A") as a:
        session = await a.begin()
        source = {"kind": "file", "name": 'the "new" <animals>.txt'}
        content = [{"type": "text", "text": "This file was added."}]
        await a.ask("session/inject", session=session, content=content, source=source)
        await a.grows()
        await a.turn(session, "Which animal sleeps?")
        await a.ask("session/read", session=session, view="surface")
        await a.proves(session, equal=1)


async def inject_during_step(tale: Tale) -> None:
    """Something the model should know, told while a step is open

    The first is there before the next step, because there is one; the second comes in the last step and stands behind
    it, before the turn's end. Rule: an inject becomes its message before the next step or the turn's end.
    """
    first, second = tale.gate(), tale.gate()
    await tale.plays([text("I look."), first, LISTING], [text("It is"), second, reply(" dry.")])
    async with tale.daemon("A") as a:
        session = await a.begin()
        await a.start(session, "Is it wet?")
        await a.says("I look.")
        await a.ask("session/inject", session=session, content=[_text("It rains.")], source={"kind": "client"})
        first.open()
        await a.says("It is")
        await a.ask("session/inject", session=session, content=[_text("It has stopped.")], source={"kind": "client"})
        second.open()
        await a.grows()
        await a.proves(session, equal=2)


async def interrupt_in_stream(tale: Tale) -> None:
    """A turn that is stopped while the model speaks

    What was said stays, marked as interrupted, and the model reads it in the next turn; the request for the interrupt is
    answered when the end is on disk. What waits behind the turn is left alone. Rule: partial replies.
    """
    await tale.plays([chunk({"reasoning_content": "Hm."}), text("Half a"), None], [reply("Two.")], [reply("Three.")])
    async with tale.daemon("A") as a:
        session = await a.begin()
        await a.start(session, "one")
        await a.says("Hm.Half a")
        await a.start(session, "two", ifRunning="queue")
        await a.ask("turn/interrupt", session=session, turn=1)
        await a.grows()
        await a.grows()
        await a.ask("turn/interrupt", session=session, turn=1)
        await a.ask("turn/interrupt", session=session, turn=2)
        await a.ask("turn/interrupt", session=session, turn=3)
        await a.turn(session, "three")
        await a.ask("session/read", session=session, view="surface")
        await a.proves(session, equal=3)


async def interrupt_withdraws(tale: Tale) -> None:
    """A turn that is stopped together with all that waits behind it

    Every input of a client is settled before the turn is ended, so that none can start in between; what refold itself has
    to tell the model is told all the same. Rule: withdrawQueued, interrupt leaves the queue alone
    unless asked.
    """
    await tale.plays([text("Half a"), None])
    async with tale.daemon("A") as a:
        session = await a.begin()
        await a.start(session, "one")
        await a.says("Half a")
        await a.start(session, "two", ifRunning="queue")
        await a.start(session, "at once", ifRunning="steer")
        await a.ask("session/inject", session=session, content=[_text("It rains.")], source={"kind": "client"})
        await a.ask("session/configure", session=session, patch={"permissions": {"mode": "deny"}})
        await a.ask("turn/interrupt", session=session, turn=1, withdrawQueued=True)
        await a.grows()
        await a.ask("session/open", session=session)
        await a.proves(session, equal=1)


async def interrupt_before_reply(tale: Tale) -> None:
    """A turn that is stopped before the model said a word

    There is nothing to keep, so there is no reply at all; the request was sent and stays on record. Rule: nothing if
    nothing visible remains.
    """
    silent = tale.gate()
    await tale.plays([silent], [reply("Two.")])
    async with tale.daemon("A") as a:
        session = await a.begin()
        await a.start(session, "one")
        await a.grows("request/sent")
        await asyncio.to_thread(silent.reached.wait)
        await a.ask("turn/interrupt", session=session, turn=1)
        await a.grows()
        await a.turn(session, "two")
        await a.proves(session, equal=2)


async def interrupt_in_tools(tale: Tale) -> None:
    """A turn that is stopped while its tools run

    Nobody knows what became of the call that ran; the one that had its result keeps it, and no call is left unanswered.
    Rule: no closed turn leaves an unanswered call.
    """
    endless_search(tale.place)
    wanted = [
        call(0, "c1", "list_files", "{}"),
        call(1, "c2", "search_text", '{"pattern":"(a+)+$","regex":true}'),
    ]
    tale.say("The workspace has a file on which the search (a+)+$ never ends.")
    await tale.plays([calls(*wanted) + chunk({}, "tool_calls")], [reply("Never mind.")])
    async with tale.daemon("A") as a:
        session = await a.begin()
        await a.start(session, "Search for it.")
        await a.grows("tool/result", callId="c1")
        await tool_process(a.client)
        await a.ask("turn/interrupt", session=session, turn=1)
        await a.grows()
        await a.turn(session, "And without searching?")
        await a.proves(session, equal=2)


async def interrupt_before_dispatch(tale: Tale) -> None:
    """A turn that is stopped while one of its calls runs and another has not started

    Eight calls that read run together, the ninth waits for them. Those that are done keep their results, the one that runs
    has an unknown outcome, and the one that never started says so. Rule: ABORTED_BEFORE_DISPATCH.
    """
    endless_search(tale.place)
    tale.say("The workspace has a file on which the search (a+)+$ never ends.")
    wanted = [call(index, f"c{index + 1}", "list_files", "{}") for index in range(9)]
    wanted[7] = call(7, "c8", "search_text", '{"pattern":"(a+)+$","regex":true}')
    await tale.plays([calls(*wanted) + chunk({}, "tool_calls")], [reply("Never mind.")])
    async with tale.daemon("A") as a:
        session = await a.begin()
        await a.start(session, "Do a lot.")
        await a.grows("tool/result", callId="c7")
        await tool_process(a.client)
        await a.ask("turn/interrupt", session=session, turn=1)
        await a.grows()
        await a.turn(session, "And now?")
        await a.proves(session, equal=2)


async def close_cancels(tale: Tale) -> None:
    """A session that is closed while its turn runs

    Without a word about it the close is refused; with `cancel` the turn is ended first, and the log is balanced when the
    close is answered. Rule: session.busy, cause disposed.
    """
    await tale.plays([text("Half a"), None])
    async with tale.daemon("A") as a:
        session = await a.begin()
        await a.start(session, "Tell me a story.")
        await a.says("Half a")
        await a.ask("session/close", session=session)
        await a.ask("session/close", session=session, cancel=True)
        await a.grows()
        await a.proves(session, equal=1)


def _text(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


STORIES: Final = (
    queued_prompt,
    steering_joins,
    steering_continues,
    left_over_steering,
    inject_idle,
    inject_during_step,
    interrupt_in_stream,
    interrupt_withdraws,
    interrupt_before_reply,
    interrupt_in_tools,
    interrupt_before_dispatch,
    close_cancels,
)
