"""The surface: appends go to the tail, replaces take a run of positions, and neither loses half of a call."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold_protocol.errors import InvalidEventError
from refold_protocol.ids import CallId
from refold_protocol.session.codec import seal
from refold_protocol.session.events import AssistantMessage, Draft, Event, EventData, Replace, SeqRange, ToolResult, UserMessage
from refold_protocol.session.messages import text_content
from refold_protocol.session.surface import EMPTY_SURFACE, Surface, cites, fold_surface, shadowed_positions, surface_step
from tests.support.log_strategies import logs
from tests.support.logs import CLIENT, LOOP, Log, call

SUMMARY = UserMessage(text_content("A summary."), LOOP)


def _cut(name: str) -> ToolResult:
    return ToolResult(1, 1, CallId(name), text_content("(cut)"), is_error=False)


def _seqs(surface: Surface) -> list[int]:
    return [node.seq for node in surface.nodes]


def _said(seq: int, op: Replace | None = None, sources: tuple[SeqRange, ...] | None = None) -> Event:
    return seal(Draft(UserMessage(text_content(f"m{seq}"), CLIENT), op or "append", sources), seq, 0)


def _grown(*seqs: int) -> Surface:
    return fold_surface(_said(seq) for seq in seqs)


def refuses(surface: Surface, event: Event, rule: str) -> None:
    """Hold that `event` may not be folded, for that reason, and that the error names its seq."""
    with pytest.raises(InvalidEventError, match=rule) as caught:
        surface_step(surface, event)
    assert caught.value.details == {"seq": event.seq}


def _with_calls(*names: str) -> Log:
    log = Log()
    log.turn()
    log.tool_step(*names)
    return log


def _refuses_replace(log: Log, data: EventData, start: int, end: int, rule: str) -> None:
    cited = tuple((seq, seq) for seq in range(len(log.events)))
    refuses(log.surface, seal(Draft(data, Replace(start, end), cited), len(log.events), 0), rule)


def _node(log: Log, kind: type, place: int = 0) -> Event:
    return [node for node in log.surface.nodes if isinstance(node.data, kind)][place]


def test_an_append_goes_to_the_tail_and_an_event_without_an_operation_is_no_node() -> None:
    log = Log()
    log.whole_turn()
    assert _seqs(log.surface) == [event.seq for event in log.events if event.surface_op == "append"]
    assert [node.type for node in log.surface.nodes] == ["user/message", "assistant/message"]
    assert log.surface.replace_generation == 0


def test_a_replace_puts_one_node_in_the_place_of_a_run_of_nodes() -> None:
    surface = surface_step(_grown(1, 2, 3, 4), _said(9, Replace(2, 3), ((2, 3),)))
    assert _seqs(surface) == [1, 9, 4]


def test_a_replace_of_one_node_keeps_its_place() -> None:
    surface = surface_step(_grown(1, 2, 3), _said(9, Replace(2, 2), ((2, 2),)))
    assert _seqs(surface) == [1, 9, 3]


def test_only_positions_count_once_seqs_no_longer_ascend() -> None:
    surface = surface_step(_grown(1, 2, 3), _said(9, Replace(1, 1), ((1, 1),)))
    assert _seqs(surface) == [9, 2, 3]
    assert _seqs(surface_step(surface, _said(10, Replace(9, 2), ((2, 2), (9, 9))))) == [10, 3]
    refuses(surface, _said(10, Replace(2, 9), ((2, 2), (9, 9))), "from 2 back to 9")


@pytest.mark.parametrize(("start", "end"), [(7, 2), (1, 7)])
def test_a_replace_names_nodes_that_are_on_the_surface(start: int, end: int) -> None:
    refuses(_grown(1, 2, 3), _said(9, Replace(start, end), ((1, 3), (7, 7))), "node 7, which is not on the surface")


def test_a_node_that_was_replaced_cannot_be_replaced_again() -> None:
    surface = surface_step(_grown(1, 2), _said(9, Replace(1, 1), ((1, 1),)))
    refuses(surface, _said(10, Replace(1, 1), ((1, 1),)), "node 1, which is not on the surface")


@pytest.mark.parametrize("cited", [None, (), ((1, 1), (3, 3)), ((2, 3),), ((1, 2),)])
def test_a_replace_cites_every_node_that_it_shadows(cited: tuple[SeqRange, ...] | None) -> None:
    refuses(_grown(1, 2, 3), _said(9, Replace(1, 3), cited), "without citing it")


def test_a_replace_may_cite_more_than_it_shadows() -> None:
    assert _seqs(surface_step(_grown(1, 4), _said(9, Replace(1, 1), ((0, 8),)))) == [9, 4]


def test_a_range_cites_its_ends_and_what_lies_between() -> None:
    assert [seq for seq in range(10) if cites(((1, 1), (4, 6)), seq)] == [1, 4, 5, 6]
    assert not cites(None, 0)


def test_the_generation_rises_by_one_for_each_replace_and_never_for_an_append() -> None:
    surface = _grown(1, 2)
    generations = [surface.replace_generation]
    for event in (_said(3, Replace(1, 1), ((1, 1),)), _said(4), _said(5, Replace(3, 4), ((2, 4),))):
        surface = surface_step(surface, event)
        generations.append(surface.replace_generation)
    assert generations == [0, 1, 1, 2]


def test_an_older_state_of_the_fold_does_not_see_what_came_after_it() -> None:
    older = _grown(1, 2)
    surface_step(older, _said(3))
    surface_step(older, _said(4, Replace(1, 2), ((1, 2),)))
    assert _seqs(older) == [1, 2]


def test_pruning_puts_a_result_of_the_same_call_in_the_place_of_a_result() -> None:
    log = _with_calls("c1", "c2")
    old = _node(log, ToolResult, 1)
    pruned = log.replace(_cut("c2"), old.seq, old.seq)
    assert [node.seq for node in log.surface.nodes if isinstance(node.data, ToolResult)][1] == pruned.seq


def test_a_result_never_takes_the_place_of_another_calls_result() -> None:
    log = _with_calls("c1", "c2")
    old = _node(log, ToolResult, 0)
    _refuses_replace(log, _cut("c2"), old.seq, old.seq, "puts a tool result in place of something else")


def test_a_result_never_takes_the_place_of_a_message_or_of_several_nodes() -> None:
    log = _with_calls("c1", "c2")
    user, asked, one, two = _seqs(log.surface)
    for start in (user, asked, one):
        for end in {two} | ({start} - {one}):
            _refuses_replace(log, _cut("c1"), start, end, "puts a tool result in place of something else")


def test_a_result_is_replaced_by_nothing_but_a_result() -> None:
    log = _with_calls("c1")
    result = _node(log, ToolResult)
    _refuses_replace(log, SUMMARY, result.seq, result.seq, r"takes the result of call c\d away")


def test_a_run_is_replaced_with_its_calls_and_all_their_results() -> None:
    log = _with_calls("c1", "c2")
    log.replace(SUMMARY, log.surface.nodes[0].seq, log.surface.nodes[-1].seq)
    assert [node.data for node in log.surface.nodes] == [SUMMARY]


@pytest.mark.parametrize(("first", "last"), [(0, 1), (0, 2), (1, 2), (1, 1)])
def test_no_run_is_replaced_that_holds_a_call_without_its_result(first: int, last: int) -> None:
    log = _with_calls("c1", "c2")
    seqs = _seqs(log.surface)
    _refuses_replace(log, SUMMARY, seqs[first], seqs[last], "changes which calls wait for the results behind it")


@pytest.mark.parametrize(("first", "last"), [(2, 3), (3, 3), (3, 4)])
def test_no_run_is_replaced_that_holds_a_result_without_its_call(first: int, last: int) -> None:
    log = _with_calls("c1", "c2")
    log.step()
    log.reply("Because.")
    log.end_step()
    seqs = _seqs(log.surface)
    _refuses_replace(log, SUMMARY, seqs[first], seqs[last], r"takes the result of call c\d away")


def test_a_reply_may_take_the_place_of_one_that_makes_the_same_calls() -> None:
    log = _with_calls("c1")
    old = _node(log, AssistantMessage)
    new = AssistantMessage(1, 1, (*text_content("(thinking left out)"), call("c1")), "engine", "chain", "tool-calls")
    log.replace(new, old.seq, old.seq)
    assert _node(log, AssistantMessage).data == new
    first = log.surface.nodes[0].seq
    _refuses_replace(log, AssistantMessage(1, 1, (call("c9"),), "e", "c", "stop"), first, first, "changes which calls wait")


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9), st.integers(0, 9), st.integers(0, 3)), max_size=20))
def test_the_fold_agrees_with_a_plain_list(moves: list[tuple[bool, int, int, int]]) -> None:
    surface, model, generation = EMPTY_SURFACE, list[int](), 0
    for seq, (append, start, end, uncited) in enumerate(moves):
        if append:
            surface = surface_step(surface, _said(seq))
            model.append(seq)
            continue
        cited = tuple((one, one) for one in range(seq) if one != uncited)
        places = [model.index(edge) for edge in (start, end) if edge in model]
        run = model[places[0] : places[1] + 1] if len(places) == 2 else []
        event = _said(seq, Replace(start, end), cited)
        if run and uncited not in run:
            assert shadowed_positions(surface, Replace(start, end), seq) == (places[0], places[1])
            model[places[0] : places[1] + 1] = [seq]
            surface, generation = surface_step(surface, event), generation + 1
        else:
            with pytest.raises(InvalidEventError):
                surface_step(surface, event)
        assert (_seqs(surface), surface.replace_generation) == (model, generation)


@given(logs(), st.integers(0, 60))
def test_folding_a_prefix_and_going_on_equals_folding_all(log: Log, cut: int) -> None:
    whole = fold_surface(log.events)
    assert fold_surface(log.events[cut:], fold_surface(log.events[:cut])) == whole
    assert whole == log.surface
    assert whole.replace_generation == sum(isinstance(event.surface_op, Replace) for event in log.events)
