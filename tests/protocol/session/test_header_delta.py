"""Header deltas: what is written of a change makes the new header of the old one, and what does not fit is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from refold_protocol.errors import SessionCorruptionError
from refold_protocol.json_text import JsonText
from refold_protocol.session.codec import decode_event, seal
from refold_protocol.session.events import Draft, Event, RequestHeader, RequestHeaderDelta
from refold_protocol.session.header import (
    apply_delta,
    canonical_header,
    diff_header,
    fold_header,
    header_draft,
    header_step,
    lines_of,
)
from refold_protocol.session.messages import (
    EpochHeader,
    Message,
    SystemDelta,
    ToolSchema,
    ToolsDelta,
    encode_compact,
    text_content,
)
from tests.support import strategies
from tests.support.header_strategies import SEPARATORS, related_headers
from tests.support.logs import HEADER

READ, LIST, EDIT = (ToolSchema(name, "Does it.", JsonText("{}")) for name in ("read", "list", "edit"))
EDIT_2 = ToolSchema("edit", "Does it well.", JsonText("{}"))
RULES = (Message("user", text_content("House rules")),)
BASE = EpochHeader(HEADER.config, "one\ntwo\nthree\nfour", (READ, LIST, EDIT), RULES)
OPAQUE = st.sampled_from((JsonText("{}"), JsonText('{"a" : "\u2028"}')))
ANY = strategies.structs(EpochHeader, OPAQUE)


def written(old: EpochHeader, new: EpochHeader) -> EpochHeader:
    """What a reader has after `old` and the line of what is written for `new`."""
    draft = header_draft(old, new, anchored=True)
    if draft is None:
        return old
    read = fold_header([decode_event(seal(draft, 7, 0).line)], old)
    assert read is not None
    return read


def of(delta: RequestHeaderDelta, seq: int = 7) -> Event:
    return seal(Draft(delta), seq, 0)


@given(related_headers())
def test_what_is_written_of_a_change_makes_the_new_header_of_the_old_one(pair: tuple[EpochHeader, ...]) -> None:
    """Invariant: What is written of a change of the header makes the new header of the old one, whatever they are."""
    old, new = pair
    assert written(old, new) == new
    assert encode_compact(written(old, new)) == encode_compact(new)


@given(ANY, ANY.map(canonical_header))
def test_and_so_it_does_for_headers_that_have_nothing_in_common(old: EpochHeader, new: EpochHeader) -> None:
    assert written(old, new) == new


@given(related_headers())
def test_a_delta_that_is_given_is_right_and_holds_only_what_changed(pair: tuple[EpochHeader, ...]) -> None:
    old, new = pair
    delta = diff_header(old, new)
    if delta is None:
        assert old.tools != new.tools
        return
    assert apply_delta(old, delta) == new
    assert canonical_header(apply_delta(old, delta)) == apply_delta(old, delta)
    assert (delta == RequestHeaderDelta()) == (old == new)
    assert (delta.system is None) == (old.system == new.system)
    assert (delta.tools is None) == (old.tools == new.tools)
    assert (delta.config is None) == (old.config == new.config)
    assert (delta.message_prefix is None) == (old.message_prefix == new.message_prefix)


@given(related_headers(6), st.lists(st.booleans(), min_size=6, max_size=6), st.integers(0, 6))
def test_folding_any_split_of_a_log_of_deltas_and_snapshots_equals_folding_all(
    headers: tuple[EpochHeader, ...], anchored: list[bool], cut: int
) -> None:
    events: list[Event] = []
    state = None
    for header, known in zip(headers, anchored, strict=True):
        draft = header_draft(state, header, anchored=known)
        if draft is not None:
            events.append(seal(draft, len(events), 0))
        state = fold_header(events)
        assert state == header
    assert fold_header(events[cut:], fold_header(events[:cut])) == state


@given(related_headers())
def test_a_change_of_lines_keeps_all_that_it_can_at_both_ends(pair: tuple[EpochHeader, ...]) -> None:
    old, new = (lines_of(header.system) for header in pair)
    delta = diff_header(EpochHeader(HEADER.config, pair[0].system), EpochHeader(HEADER.config, pair[1].system))
    assert delta is not None
    if delta.system is None:
        return
    start, end = delta.system.keep_start, delta.system.keep_end
    removed = old[start : len(old) - end]
    assert not (removed and delta.system.insert and removed[0] == delta.system.insert[0])
    assert not (removed and delta.system.insert and removed[-1] == delta.system.insert[-1])
    assert len(removed) + start + end == len(old)
    assert len(delta.system.insert) + start + end == len(new)


@pytest.mark.parametrize("mark", SEPARATORS)
def test_a_line_ends_at_a_line_feed_and_at_nothing_else(mark: str) -> None:
    old, new = (EpochHeader(HEADER.config, f"a{mark}b\nc{mark}{word}{mark}d\n{mark}") for word in ("x", "y"))
    delta = diff_header(old, new)
    assert delta is not None
    assert delta.system is not None
    assert sum(line.count("\n") for line in delta.system.insert) == 0
    kept = 1 + 2 * mark.count("\n")
    assert (delta.system.keep_start, delta.system.keep_end) == (kept, kept)
    assert written(old, new).system == new.system


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("one\ntwo\nthree", "one\n2\nthree", SystemDelta(1, ("2",), 1)),
        ("one\ntwo", "one\ntwo\nthree", SystemDelta(2, ("three",), 0)),
        ("one\ntwo", "zero\none\ntwo", SystemDelta(0, ("zero",), 2)),
        ("one\ntwo\nthree", "one\nthree", SystemDelta(1, (), 1)),
        ("a\na", "a\na\na", SystemDelta(2, ("a",), 0)),
        ("a\na\na", "a", SystemDelta(1, (), 0)),
        ("one", "one\n", SystemDelta(1, ("",), 0)),
        (None, "one\n", SystemDelta(0, ("one", ""), 0)),
        ("one\n", None, SystemDelta(0, (), 0)),
    ],
)
def test_a_change_of_the_system_text_is_a_change_of_lines(old: str | None, new: str | None, expected: SystemDelta) -> None:
    before, after = EpochHeader(HEADER.config, old), EpochHeader(HEADER.config, new)
    assert diff_header(before, after) == RequestHeaderDelta(system=expected)
    assert apply_delta(before, RequestHeaderDelta(system=expected)) == after


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        ((READ, EDIT), ToolsDelta(("list",), (), ())),
        ((READ, LIST, EDIT_2), ToolsDelta((), (EDIT_2,), ())),
        ((READ, EDIT_2), ToolsDelta(("list",), (EDIT_2,), ())),
        (None, ToolsDelta(("read", "list", "edit"), (), ())),
        (
            (READ, LIST, EDIT, ToolSchema("run", "", JsonText("{}"))),
            ToolsDelta((), (), (ToolSchema("run", "", JsonText("{}")),)),
        ),
    ],
    ids=["removed", "changed", "both", "all gone", "added"],
)
def test_tools_are_removed_changed_in_place_or_added_at_the_end(
    new: tuple[ToolSchema, ...] | None, expected: ToolsDelta
) -> None:
    after = replace(BASE, tools=new)
    assert diff_header(BASE, after) == RequestHeaderDelta(tools=expected)
    assert apply_delta(BASE, RequestHeaderDelta(tools=expected)) == after


def test_the_first_tools_of_a_header_are_added() -> None:
    bare = replace(BASE, tools=None)
    assert diff_header(bare, BASE) == RequestHeaderDelta(tools=ToolsDelta((), (), (READ, LIST, EDIT)))
    assert written(bare, BASE) == BASE


@pytest.mark.parametrize(
    "new",
    [
        (LIST, READ, EDIT),
        (EDIT, READ, LIST),
        (ToolSchema("run", "", JsonText("{}")), READ, LIST, EDIT),
        (READ, LIST, EDIT, READ),
    ],
    ids=["reordered", "moved", "added in front", "a name twice"],
)
def test_what_no_delta_says_is_a_snapshot(new: tuple[ToolSchema, ...]) -> None:
    after = replace(BASE, tools=new)
    assert diff_header(BASE, after) is None
    assert header_draft(BASE, after, anchored=True) == Draft(RequestHeader(after, "fallback"))


def test_of_tools_with_one_name_twice_no_delta_is_made_and_they_may_stay() -> None:
    twice = replace(BASE, tools=(READ, READ))
    assert diff_header(twice, BASE) is None
    assert diff_header(twice, replace(BASE, tools=(EDIT,))) is None
    told = replace(twice, system="two\nthree")
    assert diff_header(twice, told) == RequestHeaderDelta(system=SystemDelta(0, ("two", "three"), 0))
    assert written(twice, told) == told


def test_the_prefix_is_replaced_whole_and_an_empty_one_says_that_there_is_none() -> None:
    gone, other = replace(BASE, message_prefix=None), replace(BASE, message_prefix=(*RULES, *RULES))
    assert diff_header(BASE, gone) == RequestHeaderDelta(message_prefix=())
    assert diff_header(BASE, other) == RequestHeaderDelta(message_prefix=(*RULES, *RULES))
    assert b'"messagePrefix":[]' in of(RequestHeaderDelta(message_prefix=())).line
    assert written(BASE, gone) == gone
    assert written(gone, BASE) == BASE


def test_the_call_config_is_replaced_whole() -> None:
    after = replace(BASE, config=replace(BASE.config, temperature=0.5, model="random"))
    assert diff_header(BASE, after) == RequestHeaderDelta(config=after.config)
    assert written(BASE, after) == after


def test_a_delta_before_any_snapshot_is_a_corrupt_log() -> None:
    with pytest.raises(SessionCorruptionError, match="event 7 changes a header, but none was recorded") as caught:
        fold_header([of(RequestHeaderDelta(config=HEADER.config))])
    assert caught.value.details == {"seq": 7}


@pytest.mark.parametrize(
    ("delta", "why"),
    [
        (RequestHeaderDelta(system=SystemDelta(4, (), 1)), "keeps 4 and 1 lines of a system text that has 4"),
        (RequestHeaderDelta(system=SystemDelta(-1, (), 0)), "keeps -1 and 0"),
        (RequestHeaderDelta(system=SystemDelta(0, (), -1)), "keeps 0 and -1"),
        (RequestHeaderDelta(tools=ToolsDelta(("run",), (), ())), "removes or changes the tool 'run', which is not there"),
        (RequestHeaderDelta(tools=ToolsDelta((), (replace(EDIT, name="run"),), ())), "changes the tool 'run'"),
        (RequestHeaderDelta(tools=ToolsDelta((), (), (EDIT,))), "adds the tool 'edit', which is there"),
        (RequestHeaderDelta(tools=ToolsDelta(("edit",), (), (EDIT,))), "two have one name"),
        (RequestHeaderDelta(tools=ToolsDelta(("edit",), (EDIT_2,), ())), "two have one name"),
        (RequestHeaderDelta(tools=ToolsDelta(("edit", "edit"), (), ())), "two have one name"),
        (RequestHeaderDelta(tools=ToolsDelta((), (EDIT, EDIT_2), ())), "two have one name"),
    ],
)
def test_a_delta_that_does_not_fit_is_a_corrupt_log_and_names_its_place(delta: RequestHeaderDelta, why: str) -> None:
    """Invariant: A header delta that does not fit is a corrupt log, refused before it is accepted."""
    with pytest.raises(SessionCorruptionError, match="event 9 does not fit the header that it changes: ") as caught:
        header_step(BASE, of(delta, 9))
    assert why in caught.value.message
    assert caught.value.details == {"seq": 9}


def test_tools_of_which_two_have_one_name_cannot_be_changed_by_name() -> None:
    with pytest.raises(SessionCorruptionError, match="two have one name"):
        apply_delta(replace(BASE, tools=(READ, READ)), RequestHeaderDelta(tools=ToolsDelta(("read",), (), ())))


def test_no_lines_are_kept_of_a_text_that_is_absent() -> None:
    bare = replace(BASE, system=None)
    assert apply_delta(bare, RequestHeaderDelta(system=SystemDelta(0, (), 0))) == bare
    with pytest.raises(SessionCorruptionError):
        apply_delta(bare, RequestHeaderDelta(system=SystemDelta(1, (), 0)))


def test_a_delta_without_parts_changes_nothing() -> None:
    nothing = RequestHeaderDelta(SystemDelta(2, (), 2), ToolsDelta((), (), ()))
    for delta in (RequestHeaderDelta(), nothing):
        assert header_step(BASE, of(delta)) == BASE


def test_what_a_delta_leaves_empty_is_absent() -> None:
    delta = RequestHeaderDelta(SystemDelta(0, ("",), 0), ToolsDelta(("read", "list", "edit"), (), ()), message_prefix=())
    assert apply_delta(BASE, delta) == EpochHeader(BASE.config)


@given(ANY, strategies.structs(RequestHeaderDelta, OPAQUE))
def test_any_delta_gives_a_header_or_is_refused_as_corrupt(header: EpochHeader, delta: RequestHeaderDelta) -> None:
    try:
        after = apply_delta(canonical_header(header), delta)
    except SessionCorruptionError:
        return
    assert after.system != ""
    assert after.tools != ()
    assert after.message_prefix != ()
