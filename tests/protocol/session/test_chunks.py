"""The assembler: chunks of one attempt to the content of a reply, and what is kept of one that did not finish."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold_protocol.session.chunks import Reply, assemble, partial_content, with_call_ids, without_calls
from refold_protocol.session.messages import (
    Block,
    BlockEnd,
    BlockStart,
    Chunk,
    FinishChunk,
    ImageBlock,
    ReasoningBlock,
    ReasoningDelta,
    TextBlock,
    TextDelta,
    ToolCallBlock,
    ToolCallDelta,
    Usage,
    UsageChunk,
)
from tests.support import strategies
from tests.support.logs import call, spoken


def _content(*chunks: Chunk) -> tuple[Block, ...]:
    return assemble(chunks).content


def _ids(content: tuple[Block, ...], used: frozenset[str] = frozenset()) -> list[str]:
    return [block.id for block in with_call_ids(content, 2, 3, used.__contains__) if isinstance(block, ToolCallBlock)]


def _now(name: str) -> ToolCallBlock:
    return ToolCallBlock(name, "now", "{}")


def test_no_chunks_make_an_empty_reply_without_an_end() -> None:
    assert assemble(()) == Reply((), None, None)


def test_a_call_that_nobody_named_has_an_empty_id_and_name() -> None:
    """The loop gives it an id, and its unknown tool an error result."""
    assert _content(BlockStart(0, "tool-call"), ToolCallDelta(0, "{}")) == (ToolCallBlock("", "", "{}"),)


def test_deltas_of_a_block_are_joined_as_they_came() -> None:
    assert _content(BlockStart(0, "text"), TextDelta(0, "那"), TextDelta(0, ""), TextDelta(0, "🙂 ")) == (TextBlock("那🙂 "),)


def test_blocks_that_arrive_interleaved_stand_in_the_order_in_which_they_first_appeared() -> None:
    chunks = (
        BlockStart(7, "reasoning"),
        BlockStart(3, "tool-call", "c1", "read_file"),
        ReasoningDelta(7, "h"),
        BlockStart(5, "tool-call", "c2", "list_files"),
        ToolCallDelta(5, '{"dir"'),
        ToolCallDelta(3, '{"path"'),
        ReasoningDelta(7, "m"),
        ToolCallDelta(5, ':"."}'),
        TextDelta(0, "Look:"),
        ToolCallDelta(3, ':"a"}'),
    )
    one, two = ToolCallBlock("c1", "read_file", '{"path":"a"}'), ToolCallBlock("c2", "list_files", '{"dir":"."}')
    assert _content(*chunks) == (ReasoningBlock("hm"), one, two, TextBlock("Look:"))


def test_a_delta_without_a_start_opens_its_block() -> None:
    chunks = (TextDelta(0, "a"), ReasoningDelta(1, "b"), ToolCallDelta(2, "{}"))
    assert _content(*chunks) == (TextBlock("a"), ReasoningBlock("b"), ToolCallBlock("", "", "{}"))


@pytest.mark.parametrize("late", [TextDelta(0, "!"), ReasoningDelta(0, "!"), ToolCallDelta(0, "!")])
def test_deltas_after_the_end_of_their_block_are_ignored(late: Chunk) -> None:
    assert _content(*spoken("Done."), late) == (TextBlock("Done."),)


def test_the_end_of_one_block_closes_no_other_and_an_end_without_a_block_nothing() -> None:
    chunks = (BlockEnd(1), TextDelta(0, "a"), TextDelta(1, "b"), BlockEnd(0), BlockEnd(9), TextDelta(1, "c"))
    assert _content(*chunks) == (TextBlock("a"), TextBlock("bc"))


def test_a_block_never_changes_its_kind() -> None:
    chunks = (
        BlockStart(0, "text"),
        BlockStart(0, "reasoning"),
        ReasoningDelta(0, "x"),
        ToolCallDelta(0, "{"),
        TextDelta(0, "a"),
    )
    assert _content(*chunks) == (TextBlock("a"),)


def test_the_name_and_the_id_of_a_call_are_set_once_whenever_they_come() -> None:
    chunks = (
        BlockStart(0, "tool-call"),
        BlockStart(0, "tool-call", name="read_file"),
        ToolCallDelta(0, "{"),
        BlockStart(0, "tool-call", "c1", "read_file"),
        BlockStart(0, "tool-call", "c2", "list_files"),
        ToolCallDelta(0, "}"),
    )
    assert _content(*chunks) == (ToolCallBlock("c1", "read_file", "{}"),)


def test_an_empty_id_or_name_leaves_room_for_a_later_one() -> None:
    assert _content(BlockStart(0, "tool-call", "", ""), BlockStart(0, "tool-call", "c1", "now")) == (_now("c1"),)


def test_blocks_of_text_that_never_got_any_are_left_out() -> None:
    assert _content(BlockStart(0, "text"), BlockStart(1, "reasoning"), BlockEnd(1), BlockStart(2, "hologram")) == ()


def test_blank_text_is_kept_because_it_was_said() -> None:
    assert _content(TextDelta(0, " \n"), ReasoningDelta(1, "\t")) == (TextBlock(" \n"), ReasoningBlock("\t"))


def test_a_call_without_arguments_is_a_call_with_none() -> None:
    """A-08a: nothing, blanks and `null` all mean that no arguments were given."""
    for text in ("", "  ", "null", " null\n"):
        assert _content(BlockStart(0, "tool-call", "c0", "now"), ToolCallDelta(0, text)) == (_now("c0"),)


def test_the_last_usage_and_the_last_reason_count() -> None:
    chunks = (UsageChunk(Usage(40, 1)), FinishChunk("stop"), UsageChunk(Usage(40, 3)), FinishChunk("length", "max"))
    assert assemble(chunks) == Reply((), "length", Usage(40, 3))


@given(st.lists(strategies.chunks(), max_size=12), st.integers(0, 4))
def test_where_the_provider_cuts_its_deltas_changes_nothing(chunks: list[Chunk], at: int) -> None:
    cut: list[Chunk] = []
    for chunk in chunks:
        match chunk:
            case TextDelta(index=index, text=text):
                cut += [TextDelta(index, text[:at]), TextDelta(index, text[at:])]
            case ReasoningDelta(index=index, text=text):
                cut += [ReasoningDelta(index, text[:at]), ReasoningDelta(index, text[at:])]
            case ToolCallDelta(index=index, arguments=text):
                cut += [ToolCallDelta(index, text[:at]), ToolCallDelta(index, text[at:])]
            case _:
                cut.append(chunk)
    assert assemble(cut) == assemble(chunks)


@given(st.lists(st.tuples(st.integers(0, 3), st.text(max_size=3)), max_size=20))
def test_each_block_holds_exactly_the_deltas_of_its_index(deltas: list[tuple[int, str]]) -> None:
    content = _content(*(TextDelta(index, text) for index, text in deltas))
    model: dict[int, str] = {}
    for index, text in deltas:
        model[index] = model.get(index, "") + text
    assert content == tuple(TextBlock(text) for text in model.values() if text)


def test_of_a_partial_reply_text_and_reasoning_are_kept_and_calls_are_not() -> None:
    content = (ReasoningBlock("hm"), call("c1"), TextBlock("Look:"), call("c2"))
    assert partial_content(content) == (ReasoningBlock("hm"), TextBlock("Look:"))
    assert without_calls(content) == (ReasoningBlock("hm"), TextBlock("Look:"))


@pytest.mark.parametrize("content", [(), (TextBlock(" \n"),), (ReasoningBlock("\t"), TextBlock("")), (call("c1"),)])
def test_nothing_is_kept_of_a_partial_reply_in_which_nothing_is_visible(content: tuple[Block, ...]) -> None:
    """B-03: an empty reply is never recorded for a stream that broke."""
    assert partial_content(content) is None


@pytest.mark.parametrize(
    "content", [(ReasoningBlock("hm"),), (TextBlock(" "), TextBlock("a")), (TextBlock(" "), ReasoningBlock("b"))]
)
def test_a_partial_reply_is_kept_whole_when_any_of_it_is_visible(content: tuple[Block, ...]) -> None:
    """B-03a: thinking alone is kept for people; the projection keeps it from the model."""
    assert partial_content(content) == content


def test_ids_of_the_provider_are_kept_where_nobody_has_used_them() -> None:
    content = (TextBlock("Look:"), call("c1", '{"a":1}'), ImageBlock("image/png", "00"), call("c2"))
    assert with_call_ids(content, 2, 3, lambda _: False) == content


def test_a_missing_id_is_made_from_the_place_of_the_call() -> None:
    assert _ids((TextBlock("Look:"), call(""), call("c2"), call(""))) == ["call_2_3_1", "c2", "call_2_3_3"]


def test_an_id_that_the_session_has_used_is_replaced() -> None:
    assert _ids((call("c1"), call("c2")), frozenset({"c2"})) == ["c1", "call_2_3_2"]


def test_an_id_that_stands_twice_in_a_reply_is_kept_for_the_first_call_only() -> None:
    content = (call("c1", "1"), call("c1", "2"))
    named = with_call_ids(content, 2, 3, lambda _: False)
    assert named == (ToolCallBlock("c1", "read_file", "1"), ToolCallBlock("call_2_3_2", "read_file", "2"))


def test_a_made_id_gives_way_to_ids_that_look_like_it() -> None:
    assert _ids((call("call_2_3_2"), call(""))) == ["call_2_3_2", "call_2_3_2_"]
    assert _ids((call(""),), frozenset({"call_2_3_1", "call_2_3_1_"})) == ["call_2_3_1__"]
    assert _ids((call(""), call("call_2_3_1"))) == ["call_2_3_1", "call_2_3_2"]


_SOME_IDS = st.sampled_from(["", "c1", "c2", "call_2_3_1", "call_2_3_2", "call_2_3_2_"])


@given(st.lists(_SOME_IDS, max_size=6), st.frozensets(_SOME_IDS))
def test_ids_are_never_empty_never_used_and_never_twice(given_ids: list[str], used: frozenset[str]) -> None:
    ids = _ids(tuple(call(name) for name in given_ids), used)
    assert len(ids) == len(set(ids)) == len(given_ids)
    assert used.isdisjoint(ids)
    assert "" not in ids
