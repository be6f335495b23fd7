"""What is larger than the window: a prompt is blocked with the numbers, and no single message makes a session useless."""

from __future__ import annotations

import pytest

from refold_protocol.errors import ProviderError
from refold_protocol.session.events import InputSettled, Replace, TurnEnd, UserMessage
from refold_protocol.session.messages import text_of
from tests.support.loop_host import Script, ScriptedHost, ScriptedProvider, says
from tests.support.loops import assert_proven, end_of, last, scripted_session, turn, types

pytestmark = pytest.mark.anyio

OVERFLOW = ProviderError("provider.contextOverflow", "too large (9,000 tokens asked, the window holds 8,192)", status=413)


def host(*scripts: Script, window: int = 4_000) -> ScriptedHost:
    made = ScriptedHost(ScriptedProvider(*scripts))
    made.window = window
    return made


async def test_a_prompt_larger_than_the_window_is_blocked_and_the_next_one_is_answered() -> None:
    around = host(says("fine"))
    async with scripted_session(around) as session:
        end = (await turn(session, "a pasted log " * 500)).data
        assert isinstance(end, TurnEnd)
        assert end.reason.kind == "blocked"
        assert "about 6,5" in (end.reason.reason or "")
        assert "the window of scripted/small has 4,000" in (end.reason.reason or "")
        settled = last(session, InputSettled)
        assert isinstance(settled, InputSettled)
        assert (settled.how, settled.reason) == ("blocked", end.reason.reason)
        assert "user/message" not in types(session)
        assert around.scripted.requests == []
        assert end_of(await turn(session, "what is 2+2?")) == "completed"
        assert_proven(session)


async def test_a_message_that_no_request_can_hold_is_cut_once_the_next_prompt_needs_the_window() -> None:
    """The provider counts more than the estimate says: the prompt is sent, is refused, and stays in the history."""
    around = host([OVERFLOW], [OVERFLOW], says("fine"), window=8_000)
    async with scripted_session(around) as session:
        assert end_of(await turn(session, "a pasted log " * 500)) == "error"
        assert end_of(await turn(session, "what is 2+2?")) == "completed"
        cut = session.session_log.folds.request_state.surface.nodes[0]
        assert isinstance(cut.data, UserMessage)
        assert isinstance(cut.surface_op, Replace)
        assert "characters cut out here because the message does not fit the window" in text_of(cut.data.content)
        assert text_of(cut.data.content).startswith("a pasted log ")
        assert_proven(session)
