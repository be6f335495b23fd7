"""Stories of what stands before a history and of who else has a say: session prefixes and plugins at the seams.

The source of each plugin is a part of its transcript.
"""

from __future__ import annotations

from typing import Final

from tests.support.transcripts_of_turns import READ
from tests.support.transcripts_stage import Tale


async def session_prefix(tale: Tale) -> None:
    """Project instructions, and what becomes of a change to them

    An instance composes its prefix once, before its first request: a file that changes in mid-session changes nothing. The
    next instance composes anew, and the drift shows on its snapshot. Rule: agent/session-prefix.
    """
    tale.file("AGENTS.md", "Answer in French.\n")
    tale.script({"text": "Un."}, {"text": "Deux."})
    async with tale.daemon("A") as a:
        session = await a.begin()
        await a.turn(session, "one")
        await a.ask("session/read", session=session, view="header")
        tale.file("AGENTS.md", "Answer in Danish.\n")
        await a.turn(session, "two")
        seq = a.events.last
    tale.script({"text": "Tre."})
    async with tale.daemon("B") as b:
        await b.ask("session/open", session=session)
        await b.follow(session, after=seq)
        await b.turn(session, "three")
        await b.ask("session/read", session=session, view="header")
        await b.ask("request/explain", session=session, turn=3, step=1)
        await b.proves(session, equal=3)


async def system_change(tale: Tale) -> None:
    """A system text that changes in mid-session

    The header is compared by value at every step, and what changed is recorded as the difference of its lines, once. Rule:
    request/header-delta.
    """
    tale.plugin(
        "manners",
        """
        from refold_server.plugins import ASSEMBLE, Assembled

        async def polite(asked, next):
            offered = await next()
            if asked.place.turn == 1:
                return offered
            return Assembled(offered.system + "\\nSay please.", offered.tools)

        def register(registry):
            registry.on(ASSEMBLE, polite)
        """,
    )
    tale.script({"text": "One."}, {"text": "Two, please."}, {"text": "Three, please."})
    async with tale.daemon("A") as a:
        session = await a.begin()
        for turn, said in enumerate(("one", "two", "three"), 1):
            await a.turn(session, said)
            await a.ask("request/explain", session=session, turn=turn, step=1)
        await a.proves(session, equal=3)


async def tools_join(tale: Tale) -> None:
    """A tool that turns up in mid-session

    Tools stand before the history in every prompt, so a new one waits for the next break that happens anyway, or until the
    client asks for it; then it stands behind the others. Rule: the tool list is frozen for an instance.
    """
    tale.plugin(
        "toolbox",
        """
        from refold_protocol.session.messages import ToolSchema
        from refold_server.plugins import ASSEMBLE, Assembled

        HAMMER = ToolSchema("hammer", "Hits.", '{"type":"object"}')

        async def tools(asked, next):
            offered = await next()
            later = asked.place.turn > 1
            return Assembled(offered.system, (HAMMER, *offered.tools)) if later else offered

        def register(registry):
            registry.on(ASSEMBLE, tools)
        """,
    )
    tale.script({"text": "One."}, {"text": "Two."}, {"text": "Three."})
    async with tale.daemon("A") as a:
        session = await a.begin()
        await a.turn(session, "one")
        await a.turn(session, "two")
        await a.ask("session/configure", session=session, patch={"tools": "now"})
        await a.turn(session, "three")
        await a.ask("request/explain", session=session, turn=2, step=1)
        await a.ask("request/explain", session=session, turn=3, step=1)
        await a.proves(session, equal=3)


async def swapped_request(tale: Tale) -> None:
    """A plugin that wants something else sent than what is on record

    What is about to leave is compared with what the log says; it differs, so nothing is sent at all, and the turn ends
    with the place of the first byte that differs. Rule: the live check.
    """
    tale.plugin(
        "secret",
        """
        from msgspec.structs import replace
        from refold_server.plugins import STREAM

        async def send(outgoing, next):
            other = replace(outgoing, body=outgoing.body.replace(b"sleeps", b"sings!"))
            async for chunk in next(other):
                yield chunk

        def register(registry):
            registry.on(STREAM, send)
        """,
    )
    tale.script({"text": "None."})
    async with tale.daemon("A") as a:
        session = await a.begin()
        await a.turn(session, "Which animal sleeps?")
        await a.proves(session, equal=1)


async def plugin_context(tale: Tale) -> None:
    """A plugin that tells the model something besides

    What it adds to a prompt stands behind the prompt, what it adds to an answer of a tool behind the step's last result;
    both are recorded, paid once, and never change. Rule: additional context.
    """
    tale.plugin(
        "weather",
        """
        from refold_server.plugins import POST_EXECUTE, PROMPT_SUBMIT, Accept, Submit, context

        async def prompt(asked):
            return Submit(context=(context("It rains."),))

        async def answered(asked):
            return Accept(context=(context(f"{asked.call.name} took no time."),))

        def register(registry):
            registry.on(PROMPT_SUBMIT, prompt)
            registry.on(POST_EXECUTE, answered)
        """,
    )
    tale.script({"calls": [READ]}, {"text": "The zebra sleeps, in the rain."})
    async with tale.daemon("A") as a:
        session = await a.begin()
        await a.turn(session, "Which animal sleeps?")
        await a.ask("session/read", session=session, view="surface")
        await a.proves(session, equal=2)


async def blocked_prompt(tale: Tale) -> None:
    """A plugin that vetoes a prompt

    The input is settled as blocked and the turn ends without a step; people see what they asked and why it went no
    further, the model never sees it. Rule: input/settled blocked, turn/end blocked.
    """
    tale.plugin(
        "guard",
        """
        from refold_server.plugins import PROMPT_SUBMIT, Block

        async def prompt(asked):
            if "password" in asked.content[0].text:
                return Block("prompts must not hold passwords")

        def register(registry):
            registry.on(PROMPT_SUBMIT, prompt)
        """,
    )
    tale.script({"text": "Hello."})
    async with tale.daemon("A") as a:
        session = await a.begin()
        await a.turn(session, "My password is sesame.")
        await a.turn(session, "Hello.")
        await a.ask("session/read", session=session, view="transcript")
        await a.ask("session/read", session=session, view="surface")
        await a.proves(session, equal=1)


async def denied_call(tale: Tale) -> None:
    """A plugin that keeps a call from running

    The call is on record and its answer is an error that says why, from which the model goes on. Rule: tools/pre-execute.
    """
    tale.plugin(
        "guard",
        """
        from refold_server.plugins import PRE_EXECUTE, Deny

        async def call(asked):
            if asked.name == "read_file":
                return Deny("nobody reads files on a Sunday")

        def register(registry):
            registry.on(PRE_EXECUTE, call)
        """,
    )
    tale.script({"calls": [READ]}, {"text": "Then not."})
    async with tale.daemon("A") as a:
        session = await a.begin()
        await a.turn(session, "Which animal sleeps?")
        await a.proves(session, equal=2)


async def stopped_by_plugin(tale: Tale) -> None:
    """A plugin that ends a turn which would go on

    The step with its tools is over, the model waits for their results, and the turn ends as aborted by a hook. Rule:
    agent/turn-stop, cause hook (section 3).
    """
    tale.plugin(
        "patience",
        """
        from refold_server.plugins import TURN_STOP, Stop

        async def over(asked):
            if asked.goes_on:
                return Stop("one step is enough")

        def register(registry):
            registry.on(TURN_STOP, over)
        """,
    )
    tale.script({"calls": [READ]})
    async with tale.daemon("A") as a:
        session = await a.begin()
        await a.turn(session, "Which animal sleeps?")
        await a.proves(session, equal=1)


async def broken_plugin(tale: Tale) -> None:
    """A plugin that fails

    Its failure is contained and named in the log; a handler that only adds something is passed over, and the turn goes on
    as if it were not there. Rule: failures of plugins are contained and attributed.
    """
    tale.plugin(
        "clumsy",
        """
        from refold_server.plugins import PRE_STEP

        async def ahead(asked):
            asked.prefix[0].content[0].text = "another opener"

        def register(registry):
            registry.on(PRE_STEP, ahead)
        """,
    )
    tale.script({"text": "The zebra sleeps."})
    async with tale.daemon("A") as a:
        session = await a.begin()
        await a.turn(session, "Which animal sleeps?")
        await a.proves(session, equal=1)


STORIES: Final = (
    session_prefix,
    system_change,
    tools_join,
    swapped_request,
    plugin_context,
    blocked_prompt,
    denied_call,
    stopped_by_plugin,
    broken_plugin,
)
