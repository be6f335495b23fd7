"""Stories of calls that change something, and of whoever is asked."""

from __future__ import annotations

from typing import Any, Final

from tests.support.approval_files import CHANGER
from tests.support.transcripts_stage import Tale


async def approval_allowed(tale: Tale) -> None:
    """A person who allows a call once, and then for the session

    The question is on record before it is asked, and its answer before anything runs. What is allowed for the session is
    not asked again, but decided and recorded all the same. Rule: approval/asked, flush, then ask; approval/decided, flush.
    """
    tale.plugin("changer", CHANGER, shows="a tool that appends a line to a file of the workspace")
    tale.tools("change")
    tale.script(_change("one", "c1"), _change("two", "c2"), _change("three", "c3"), {"text": "Done."})
    async with tale.daemon("A") as a:
        session = await a.begin()
        await a.start(session, "Change it.")
        await a.grows("approval/asked")
        await a.asked()
        await a.ask("session/read", session=session, view="status")
        a.answers("once")
        await a.grows("approval/asked")
        await a.asked()
        a.answers("session")
        await a.grows()
        await a.proves(session, equal=4)


async def approval_denied(tale: Tale) -> None:
    """A person who does not allow a call

    It does not run, the model is told so by an error result, and the turn goes on. An answer that comes later is refused.
    Rule: the first valid answer wins.
    """
    tale.plugin("changer", CHANGER, shows="a tool that appends a line to a file of the workspace")
    tale.tools("change")
    tale.script(_change("one", "c1"), {"text": "Then not."})
    async with tale.daemon("A") as a:
        session = await a.begin()
        await a.start(session, "Change it.")
        await a.grows("approval/asked")
        question = await a.asked()
        a.answers("deny")
        await a.grows()
        await a.ask("approval/answer", session=session, approval=question["approval"], outcome="allowed")
        await a.proves(session, equal=2)


async def approval_interrupted(tale: Tale) -> None:
    """A turn that is stopped while a question waits

    The question is settled as cancelled and taken back, and its call says that it did not run. Rule: calls not started
    when a turn is cancelled.
    """
    tale.plugin("changer", CHANGER, shows="a tool that appends a line to a file of the workspace")
    tale.tools("change")
    tale.script(_change("one", "c1"))
    async with tale.daemon("A") as a:
        session = await a.begin()
        await a.start(session, "Change it.")
        await a.grows("approval/asked")
        await a.asked()
        await a.ask("turn/interrupt", session=session, turn=1)
        await a.grows()
        await a.proves(session, equal=1)


async def approval_killed(tale: Tale) -> None:
    """A daemon that is killed while a question waits

    Nobody answered, so nothing ran: the closers cancel the question and say that the call was not started. Nobody is asked
    again. Rule: approval/decided cancelled, TOOL_NOT_STARTED.
    """
    tale.plugin("changer", CHANGER, shows="a tool that appends a line to a file of the workspace")
    tale.tools("change")
    tale.script(_change("one", "c1"))
    async with tale.daemon("A") as a:
        session = await a.begin()
        await a.start(session, "Change it.")
        told = await a.grows("approval/asked")
        question = await a.asked()
        await a.killed()
    tale.script({"text": "What did I want?"})
    async with tale.daemon("B") as b:
        await b.ask("session/open", session=session)
        await b.follow(session, after=told[-1]["seq"])
        await b.grows()
        await b.ask("approval/answer", session=session, approval=question["approval"], outcome="allowed")
        await b.turn(session, "Go on.")
        await b.proves(session, equal=2)


def _change(line: str, call: str) -> dict[str, Any]:
    return {"calls": [{"name": "change", "arguments": {"line": line}, "id": call}]}


STORIES: Final = (approval_allowed, approval_denied, approval_interrupted, approval_killed)
