"""Large results are cut before anything is summed up, stay readable, and break the cache where the log says so."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from refold_protocol.errors import ProviderError
from refold_protocol.session.events import CompactStart, Replace, StepEnd, ToolResult
from refold_protocol.session.messages import Chunk, TextBlock, UsageChunk, text_of
from refold_protocol.session.prefix_cache import fold_attribution
from refold_protocol.session.request import Request
from refold_protocol.session.transcript import transcript
from refold_server.sessions.session import Session
from tests.support.loop_host import ScriptedHost, ScriptedProvider, calls
from tests.support.loop_host import says as says_with_usage
from tests.support.loops import assert_proven, end_of, scripted_session, turn
from tests.support.plugging import of_type

pytestmark = pytest.mark.anyio

BIG = "".join(f"row {number:04}\n" for number in range(290))
OVERFLOW = ProviderError("provider.contextOverflow", "too large (9,000 tokens asked, the window holds 4,000)", status=400)


def says(text: str) -> list[Chunk]:
    return [chunk for chunk in says_with_usage(text) if not isinstance(chunk, UsageChunk)]


async def big(arguments: str) -> str:
    return BIG


def host(*scripts: list[Chunk] | list[Exception], window: int = 4_000) -> ScriptedHost:
    made = ScriptedHost(ScriptedProvider(*scripts), {"look": big})
    made.window = window
    return made


def cut(session: Session) -> list[ToolResult]:
    found = [event for event in of_type(session, ToolResult) if isinstance(event.surface_op, Replace)]
    return [event.data for event in found if isinstance(event.data, ToolResult)]


async def test_a_large_result_before_the_tail_is_cut_and_nothing_is_summed_up() -> None:
    around = host(calls(("a", "look", "{}")), says("Many rows. " * 60), says("fine"))
    around.window = 4_200
    async with scripted_session(around) as session:
        await turn(session, "one")
        assert cut(session) == []
        await turn(session, "two")
        (result,) = cut(session)
        assert of_type(session, CompactStart) == []
        (block,) = result.content
        assert isinstance(block, TextBlock)
        original = next(event for event in of_type(session, ToolResult) if event.surface_op == "append")
        assert f"read_result with seq {original.seq}" in block.text
        assert block.text.startswith("row 0000\n")
        assert block.text.endswith("row 0289\n")
        assert around.results.text(original.seq) == BIG
        assert around.results.are_shortened
        sent = around.scripted.requests[-1].history
        assert [message.role for message in sent] == ["user", "assistant", "user", "assistant", "user"]
        assert_proven(session)
        causes = [cause.kind for row in fold_attribution(session.session_log.handle.read()).rows for cause in row.causes]
        assert causes == ["pruning"]
        shown = [text_of(entry.content) for entry in transcript(session.session_log.handle.read()) if entry.kind == "tool"]
        assert shown == [BIG], "people see all of it, once"


async def test_a_result_that_alone_fills_the_window_is_cut_before_the_next_step() -> None:
    """B-02: nothing can be summed up, so the result itself is shortened."""
    around = host(calls(("a", "look", "{}")), says("Many rows."), window=3_000)
    async with scripted_session(around) as session:
        assert end_of(await turn(session, "one")) == "completed"
        assert len(cut(session)) == 1
        assert of_type(session, CompactStart) == []
        assert_proven(session)


async def test_where_cutting_is_not_enough_the_history_is_summed_up_whole() -> None:
    """A summary made of shortened results would know less, and its request would find nothing in the cache."""
    story = says("It is a long story. " * 100)
    around = host(calls(("a", "look", "{}")), story, story, says("Stories."), says("fine"), window=8_000)
    around.bodies["look"] = _medium
    async with scripted_session(around) as session:
        await turn(session, "one")
        await turn(session, "two")
        await turn(session, "three" * 400)
        assert cut(session) == []
        assert len(of_type(session, CompactStart)) == 1
        assert_proven(session)


async def _medium(arguments: str) -> str:
    return "x" * 900


async def test_an_overflow_is_answered_by_cutting_where_that_is_enough() -> None:
    around = host(calls(("a", "look", "{}")), says("Many rows."), [OVERFLOW], says("fine"), window=100_000)
    async with scripted_session(around) as session:
        around.bodies["look"] = _large
        await turn(session, "one")
        assert end_of(await turn(session, "two" * 200)) == "completed"
        assert len(cut(session)) == 1
        ends = [event.data for event in of_type(session, StepEnd)]
        assert [end.outcome for end in ends if isinstance(end, StepEnd)] == ["ok", "ok", "overflow", "ok"]
        assert of_type(session, CompactStart) == []
        assert_proven(session)


async def _large(arguments: str) -> str:
    return "many words " * 2_000


async def test_an_overflow_after_cutting_ends_the_turn_and_says_what_was_done() -> None:
    around = host(calls(("a", "look", "{}")), says("Many rows."), [OVERFLOW], [OVERFLOW], window=100_000)
    async with scripted_session(around) as session:
        around.bodies["look"] = _large
        await turn(session, "one")
        event = await turn(session, "two" * 200)
        reason = getattr(event.data, "reason", None)
        assert reason is not None
        assert reason.error.kind == "provider.contextOverflow"
        assert "cut once in this turn" in reason.error.message
        assert_proven(session)


@pytest.mark.parametrize("window", [8_000, 100_000], ids=["by pressure", "after a refusal"])
async def test_a_result_that_fits_beside_no_history_is_cut_and_the_history_is_not_summed_up_for_it(window: int) -> None:
    story, refused = says("It is a story. " * 66), window == 100_000
    around = host(story, story, story, calls(("a", "look", "{}")), window=window)
    around.scripted.scripts += [[OVERFLOW], says("fine")] if refused else [says("fine")]

    async def giant(arguments: str) -> str:
        return "many words " * (5_000 if refused else 1_200)

    around.bodies["look"] = giant
    async with scripted_session(around) as session:
        for prompt in ("one", "two", "three"):
            await turn(session, prompt)
        assert end_of(await turn(session, "four")) == "completed"
        assert len(cut(session)) == 1
        assert of_type(session, CompactStart) == []
        assert_proven(session)


async def test_where_cutting_the_end_is_not_enough_the_history_is_summed_up_behind_it() -> None:
    story = says("It is a story. " * 66)
    prompt = "four" * 260
    around = host(*[story] * 5, calls(("a", "look", "{}")), says("Five stories."), says("fine"), window=8_000)

    async def giant(arguments: str) -> str:
        return "many words " * 1_200

    around.bodies["look"] = giant
    async with scripted_session(around) as session:
        for number in range(5):
            await turn(session, str(number))
        assert end_of(await turn(session, prompt)) == "completed"
        kinds = [event.type for event in session.session_log.handle.read() if isinstance(event.surface_op, Replace)]
        assert kinds == ["tool/result", "user/message"]
        assert_proven(session)


class Reader(ScriptedProvider):
    """Looks once, then reads on, a call at a time, until it was given `length` characters; sums up when asked to. `unseen`
    has the pieces that the request behind their call did not show whole."""

    def __init__(self, length: int) -> None:
        super().__init__(calls(("a", "look", "{}")), says("Many numbers."))
        self.length = length
        self.pieces: list[str] = []
        self.unseen: list[str] = []

    async def stream(self, request: Request, body: bytes) -> AsyncGenerator[Chunk, None]:
        if not self.scripts and "replaced by a summary, and you write it now" in str(request.history[-1]):
            self.scripts = [says("Some of the numbers.")]
        elif not self.scripts:
            self.unseen += [piece for piece in self.pieces[-1:] if piece not in str(request.history)]
            done = sum(map(len, self.pieces)) == self.length
            self.scripts = [says("All of them.") if done else calls((f"r{len(self.pieces)}", "read", "{}"))]
        async for chunk in super().stream(request, body):
            yield chunk


async def test_in_a_small_window_the_model_can_read_all_of_a_cut_result_piece_by_piece() -> None:
    """A larger piece than the window's share would be cut again before the model saw it."""
    whole = "".join(f"{number:05} " for number in range(4_000))
    reader = Reader(len(whole))
    around = ScriptedHost(reader, steps=100)
    around.window = 8_000

    async def look(arguments: str) -> str:
        return whole

    async def read(arguments: str) -> str:
        rest = whole[sum(map(len, reader.pieces)) :]
        reader.pieces.append(rest[: around.results.readable(rest)])
        return reader.pieces[-1]

    around.bodies.update(look=look, read=read)
    async with scripted_session(around) as session:
        await turn(session, "one")
        assert end_of(await turn(session, "two")) == "completed"
        assert "".join(reader.pieces) == whole
        assert reader.unseen == []
        assert_proven(session)


async def test_new_tools_join_at_the_replace_because_the_history_is_paid_anew_there() -> None:
    around = host(calls(("a", "look", "{}")), says("Many rows. " * 60), says("fine"), window=4_200)
    async with scripted_session(around) as session:
        await turn(session, "one")
        around.bodies["later"] = big
        await turn(session, "two")
        tools = [[tool.name for tool in request.header.tools or ()] for request in around.scripted.requests]
        assert tools == [["look"], ["look"], ["look", "later"]]
        assert_proven(session)
