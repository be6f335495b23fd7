"""A tape is a tuple to whoever holds it, whatever others append to the same family."""

from __future__ import annotations

import gc
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold_protocol.session.append_only_list import AppendOnlyList

ITEMS = st.integers(0, 3)


@given(st.lists(st.tuples(st.integers(0, 30), ITEMS), max_size=30), st.lists(ITEMS, max_size=4))
def test_a_tape_equals_its_tuple_after_appends_to_any_older_version(grown: list[tuple[int, int]], first: list[int]) -> None:
    """Invariant: A shared sequence looks like a tuple to each holder, whatever others append."""
    tapes: list[AppendOnlyList[int]] = [AppendOnlyList(first)]
    tuples: list[tuple[int, ...]] = [tuple(first)]
    for back, item in grown:
        version = back % len(tapes)
        tapes.append(tapes[version].then(item))
        tuples.append((*tuples[version], item))
    for tape, same in zip(tapes, tuples, strict=True):
        assert tuple(tape) == same
        assert len(tape) == len(same)
        assert tuple(reversed(tape)) == same[::-1]
        assert (tape == tapes[0]) == (same == tuples[0])
        assert hash(tape) == hash(AppendOnlyList(same))


@given(st.lists(ITEMS, max_size=6), st.integers(0, 6), st.slices(6), ITEMS)
def test_places_and_slices_are_those_of_a_tuple(items: list[int], length: int, part: slice, more: int) -> None:
    tape: AppendOnlyList[int] = AppendOnlyList()
    for item in items[:length]:
        tape = tape.then(item)
    tape.then(more)  # a longer tape of the family, which this one must not see
    same = tuple(items[:length])
    assert tape[part] == same[part]
    assert [tape[place] for place in range(-len(same), len(same))] == [*same, *same]
    for place in (len(same), -len(same) - 1):
        with pytest.raises(IndexError):
            tape[place]
    assert (more in tape) == (more in same)
    assert tape.count(more) == same.count(more)


@given(st.lists(ITEMS, max_size=6), st.integers(0, 8))
def test_since_gives_what_came_after_a_length(items: list[int], length: int) -> None:
    tape = AppendOnlyList(items)
    tape.then(9)
    assert tuple(tape.since(length)) == tuple(items)[length:]


def test_a_tape_extends_only_what_it_grew_from() -> None:
    old = AppendOnlyList([1])
    new = old.then(2)
    fork = old.then(3)
    assert new.extends(old)
    assert new.extends(new)
    assert not old.extends(new)
    assert not fork.extends(new)
    assert not new.extends(AppendOnlyList([1]))


class _Item:
    pass


def test_an_empty_tape_is_extended_by_all_and_holds_on_to_nothing() -> None:
    empty: AppendOnlyList[_Item] = AppendOnlyList()
    item = _Item()
    held = weakref.ref(item)
    grown, other = empty.then(item), empty.then(_Item())
    assert grown.extends(empty)
    assert not other.extends(grown)
    assert not grown.extends(other)
    del item, grown
    gc.collect()
    assert held() is None  # the empty tape may be a constant: it keeps no session's items alive


@given(st.lists(st.tuples(st.integers(0, 30), ITEMS), max_size=30))
def test_a_tape_that_extends_another_begins_with_its_items(grown: list[tuple[int, int]]) -> None:
    tapes: list[AppendOnlyList[int]] = [AppendOnlyList()]
    for back, item in grown:
        tapes.append(tapes[back % len(tapes)].then(item))
    for one in tapes:
        for other in tapes:
            if one.extends(other):
                assert one[: len(other)] == tuple(other)


def test_a_tape_does_not_see_changes_of_the_list_it_was_made_from() -> None:
    items = [1, 2]
    tape = AppendOnlyList(items)
    items.append(3)
    assert tuple(tape) == (1, 2)


def test_an_iterator_ends_where_its_tape_ends() -> None:
    tape = AppendOnlyList([1, 2])
    iterator = iter(tape)
    tape.then(3)
    assert list(iterator) == [1, 2]


def test_a_tape_is_no_tuple_and_no_other_type() -> None:
    assert AppendOnlyList([1]) != (1,)
    assert repr(AppendOnlyList([1])) == "AppendOnlyList([1])"
