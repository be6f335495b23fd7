"""The region of a compaction: as much as leaves the retained tail, and never half of a call (B-02).

Invariant: A region never divides a call from its result, and is the largest that leaves the retained tail.
"""

from __future__ import annotations

from itertools import accumulate, pairwise

from hypothesis import given
from hypothesis import strategies as st

from refold_protocol.session.codec import seal
from refold_protocol.session.events import AssistantMessage, Draft, Event, ToolResult, UserMessage
from refold_protocol.session.messages import Block, Source, TextBlock, ToolCallBlock, text_content
from refold_server.compaction.compaction_decision import COMPACTION, Region, ranges_of, region_of

CLIENT = Source("client")


def user(seq: int, source: Source = CLIENT) -> Event:
    return seal(Draft(UserMessage(text_content("go on"), source), surface_op="append"), seq, 1)


def reply(seq: int, *calls: str) -> Event:
    blocks: tuple[Block, ...] = tuple(ToolCallBlock(call, "look", "{}") for call in calls) or (TextBlock("well"),)
    return seal(Draft(AssistantMessage(1, 1, blocks, "p", "m", "stop"), surface_op="append", sources=()), seq, 1)


def result(seq: int, call: str) -> Event:
    return seal(Draft(ToolResult(1, 1, call, text_content("seen"), False), surface_op="append"), seq, 1)  # type: ignore[arg-type]


GROUP = (user(1), reply(2, "c1", "c2"), result(3, "c1"), result(4, "c2"), reply(5), user(6))
"""B-02: a question, two calls, their results (the second one large), an answer, the next question."""


def test_b02_a_cut_before_the_results_moves_to_before_their_calls() -> None:
    assert region_of(GROUP, (10, 10, 10, 500, 10, 10), retain=525) == Region(1, 1, 1, 10)


def test_b02_a_cut_between_two_results_moves_to_before_their_calls() -> None:
    assert region_of(GROUP, (10, 10, 10, 500, 10, 10), retain=520) == Region(1, 1, 1, 10)


def test_b02_a_retained_tail_smaller_than_a_result_takes_the_whole_group_into_the_region() -> None:
    assert region_of(GROUP, (10, 10, 10, 500, 10, 10), retain=20) == Region(1, 4, 4, 530)


def test_b02_a_surface_that_is_one_group_has_no_region() -> None:
    group = (reply(2, "c1", "c2"), result(3, "c1"), result(4, "c2"))
    assert region_of(group, (10, 10, 500), retain=100) is None


def test_nothing_is_retained_where_nothing_has_to_be() -> None:
    assert region_of(GROUP, (1,) * 6, retain=0) == Region(1, 6, 6, 6)


def test_a_region_costs_no_more_than_it_may() -> None:
    assert region_of(GROUP, (10, 10, 10, 10, 10, 10), retain=0, most=45) == Region(1, 4, 4, 40)
    assert region_of(GROUP, (10, 10, 10, 10, 10, 10), retain=0, most=9) is None


def test_an_empty_surface_has_no_region() -> None:
    assert region_of((), (), retain=0) is None


def test_one_summary_is_not_summed_up_again() -> None:
    nodes = (user(9, COMPACTION), user(6))
    assert region_of(nodes, (10, 10), retain=5) is None
    assert region_of(nodes, (10, 10), retain=0) == Region(9, 6, 2, 20)


def test_edges_are_named_by_seq_though_seqs_do_not_ascend() -> None:
    nodes = (user(40, COMPACTION), user(12), reply(15), user(20))
    assert region_of(nodes, (5, 5, 5, 5), retain=5) == Region(40, 15, 3, 15)


@st.composite
def surfaces(draw: st.DrawFn) -> tuple[tuple[Event, ...], tuple[int, ...]]:
    nodes: list[Event] = []
    for _ in range(draw(st.integers(0, 8))):
        kind = draw(st.sampled_from(("user", "reply", "calls")))
        if kind == "calls":
            names = [f"c{len(nodes)}.{number}" for number in range(draw(st.integers(1, 3)))]
            nodes.append(reply(len(nodes), *names))
            for name in draw(st.permutations(names)):
                nodes.append(result(len(nodes), name))
        else:
            nodes.append(user(len(nodes)) if kind == "user" else reply(len(nodes)))
    prices = draw(st.lists(st.integers(0, 50), min_size=len(nodes), max_size=len(nodes)))
    return tuple(nodes), tuple(prices)


def _whole(nodes: tuple[Event, ...]) -> bool:
    calls = [block.id for node in nodes if isinstance(node.data, AssistantMessage) for block in _calls(node.data)]
    return sorted(calls) == sorted(node.data.call_id for node in nodes if isinstance(node.data, ToolResult))


def _calls(message: AssistantMessage) -> list[ToolCallBlock]:
    return [block for block in message.content if isinstance(block, ToolCallBlock)]


@given(surfaces(), st.integers(0, 120), st.none() | st.integers(0, 200))
def test_a_region_is_the_largest_that_may_be(
    surface: tuple[tuple[Event, ...], tuple[int, ...]], retain: int, most: int | None
) -> None:
    nodes, prices = surface
    sums = list(accumulate(prices, initial=0))
    legal = [
        cut
        for cut in range(1, len(nodes) + 1)
        if _whole(nodes[:cut]) and sums[-1] - sums[cut] >= retain and (most is None or sums[cut] <= most)
    ]
    found = region_of(nodes, prices, retain, most)
    if not legal:
        assert found is None
        return
    cut = max(legal)
    assert found == Region(nodes[0].seq, nodes[cut - 1].seq, cut, sums[cut])
    assert _whole(nodes[cut:])


@given(st.sets(st.integers(0, 60)))
def test_ranges_hold_exactly_the_seqs_and_do_not_touch(seqs: set[int]) -> None:
    ranges = ranges_of(sorted(seqs, reverse=True))
    assert [seq for first, last in ranges for seq in range(first, last + 1)] == sorted(seqs)
    assert all(before[1] + 1 < after[0] for before, after in pairwise(ranges))
