"""Stories of a turn from its prompt to its end."""

from __future__ import annotations

from typing import Final

from tests.support.chat_stream import chunk, text
from tests.support.transcripts_stage import Tale

READ: Final = {"name": "read_file", "arguments": {"path": "animals.txt"}, "id": "c1"}
SEARCH: Final = {"name": "search_text", "arguments": {"pattern": "zebra"}, "id": "c2"}
LIST: Final = {"name": "list_files", "id": "c3"}


async def text_turn(tale: Tale) -> None:
    """A prompt that is answered in text

    The input is on disk before its request is answered, then one turn of one step runs, and everything that the model
    got or said stands in the log. Rule: the loop, in order.
    """
    tale.script({"text": "The zebra sleeps."})
    async with tale.daemon("A") as a:
        session = await a.begin()
        started = await a.start(session, "Which animal sleeps?")
        await a.grows()
        await a.ask("turn/wait", session=session, input=started["input"])
        await a.ask("session/read", session=session, view="surface")
        await a.proves(session, equal=1)


async def tool_calls(tale: Tale) -> None:
    """A turn that looks things up with two tools at once

    Calls that start together are recorded together before any of them runs; they only read, so they run in parallel, and
    yet their results stand in the order of the calls. Rule: one flush before tools start, results in order.
    """
    tale.script(
        {"reasoning": "I should look.", "text": "I look.", "calls": [READ, SEARCH, LIST]},
        {"text": "animals.txt, line 2: the zebra sleeps."},
    )
    async with tale.daemon("A") as a:
        session = await a.begin()
        await a.turn(session, "Which animal sleeps?")
        await a.ask("session/read", session=session, view="transcript")
        await a.ask("session/read", session=session, view="surface")
        await a.proves(session, equal=2)


async def wrong_calls(tale: Tale) -> None:
    """Calls that cannot run: an unknown tool, broken arguments, arguments that do not fit, a file that is not there

    Each gets an error result with a stable code, and the model goes on from there. Rule: a tool never fails a turn.
    """
    tale.script(
        {
            "calls": [
                {"name": "fly", "arguments": {"to": "the moon"}, "id": "c1"},
                {"name": "read_file", "arguments": '{"path": "anim', "id": "c2"},
                {"name": "read_file", "arguments": {"file": "animals.txt"}, "id": "c3"},
                {"name": "read_file", "arguments": {"path": "plants.txt"}, "id": "c4"},
            ]
        },
        {"text": "I give up."},
    )
    async with tale.daemon("A") as a:
        session = await a.begin()
        await a.turn(session, "Fly to the moon.")
        await a.proves(session, equal=2)


async def repeated_call_ids(tale: Tale) -> None:
    """A provider that gives the same id to different calls

    An id that the session used already is replaced before anything is recorded, so that every call and its result can be
    told from all others. Rule: tool call ids.
    """
    tale.script({"calls": [READ]}, {"calls": [READ]}, {"text": "Twice the same."})
    async with tale.daemon("A") as a:
        session = await a.begin()
        await a.turn(session, "Read it twice.")
        await a.proves(session, equal=3)


async def provider_error(tale: Tale) -> None:
    """A provider that refuses the key

    The turn ends with the kind of the error and what a person can do; the prompt stays in the history, and the session
    can go on. Rule: what fails inside a turn is that turn's end.
    """
    tale.script({"status": 401, "text": '{"error": {"message": "no such key"}}'}, {"text": "Here I am."})
    async with tale.daemon("A") as a:
        session = await a.begin()
        await a.turn(session, "Are you there?")
        await a.turn(session, "And now?")
        await a.ask("session/read", session=session, view="transcript")
        await a.proves(session, equal=2)


async def context_overflow(tale: Tale) -> None:
    """A prompt that is too long for the model

    The provider says so, and the step ends as an overflow, which is told apart from other errors: it is what compaction
    can mend. Rule: a context-overflow answer ends the step.
    """
    refusal = '{"error": {"code": "context_length_exceeded", "message": "this model takes 8192 tokens"}}'
    tale.script({"status": 400, "text": refusal})
    async with tale.daemon("A") as a:
        session = await a.begin()
        await a.turn(session, "Read all of this.")
        await a.proves(session, equal=1)


async def finish_length(tale: Tale) -> None:
    """A reply that reached the limit of its length

    The calls of a capped reply are dropped, because the last of them may be half of one; no tool runs, and the turn ends
    as max-tokens. Rule: finish length, sticky.
    """
    tale.script({"text": "First I read, then", "calls": [READ], "finish": "length"}, {"text": "I go on."})
    async with tale.daemon("A") as a:
        session = await a.begin()
        await a.turn(session, "Explain everything.")
        await a.turn(session, "Go on.")
        await a.proves(session, equal=2)


async def finish_length_while_steered(tale: Tale) -> None:
    """A capped step, and steering that makes the turn go on behind it

    The turn has another step, which ends well, and is max-tokens all the same. Rule: one capped step marks the turn.
    """
    gate = tale.gate()
    await tale.plays([text("Too long"), gate, chunk({}, "length")], [text("Short."), chunk({}, "stop")])
    async with tale.daemon("A") as a:
        session = await a.begin()
        await a.start(session, "Explain everything.")
        await a.says("Too long")
        await a.start(session, "Only the main point.", ifRunning="steer")
        gate.open()
        await a.grows()
        await a.proves(session, equal=2)


async def cut_stream(tale: Tale) -> None:
    """A stream that breaks off inside a call

    What was said in text is kept as an interrupted reply, the call is not, and no tool runs. Rule: a stream that ends
    without a positive end runs no tool.
    """
    tale.script({"text": "I look.", "calls": [READ], "cut": 3}, {"text": "Once more."})
    async with tale.daemon("A") as a:
        session = await a.begin()
        await a.turn(session, "Which animal sleeps?")
        await a.turn(session, "Go on.")
        await a.proves(session, equal=2)


async def step_limit(tale: Tale) -> None:
    """A model that never stops calling tools

    The turn ends after the steps that the session allows; every call has its result. Rule: max-steps, an added kind of
    end.
    """
    tale.script({"calls": [LIST]}, {"calls": [READ]})
    async with tale.daemon("A") as a:
        session = await a.begin(limits={"steps": 2})
        await a.turn(session, "Look around.")
        await a.proves(session, equal=2)


async def content_filter(tale: Tale) -> None:
    """A provider that stops its model in the middle, and one whose model refuses

    Both are errors of the turn with a kind of their own, and what was visible by then is kept. Rule: provider.filtered
    and provider.refused.
    """
    await tale.plays(
        [text("The first step is"), chunk({}, "content_filter")],
        [chunk({"refusal": "I will not say that."}), chunk({}, "stop")],
    )
    async with tale.daemon("A") as a:
        session = await a.begin()
        await a.turn(session, "How does one do it?")
        await a.turn(session, "Say it.")
        await a.proves(session, equal=2)


async def empty_reply(tale: Tale) -> None:
    """A reply that says nothing

    It is recorded like every reply and cites its chunks, but the model will never see it: an empty message has no place
    among the messages. Rule: assistant/message for every successful call, the surface projection.
    """
    tale.script({"text": ""}, {"text": "Now I speak."})
    async with tale.daemon("A") as a:
        session = await a.begin()
        await a.turn(session, "Say nothing.")
        await a.turn(session, "Say something.")
        await a.ask("session/read", session=session, view="surface")
        await a.proves(session, equal=2)


STORIES: Final = (
    text_turn,
    tool_calls,
    wrong_calls,
    repeated_call_ids,
    provider_error,
    context_overflow,
    finish_length,
    finish_length_while_steered,
    cut_stream,
    step_limit,
    content_filter,
    empty_reply,
)
