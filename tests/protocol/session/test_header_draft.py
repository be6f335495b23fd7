"""Which event records a change of the header: a snapshot, a delta, or none."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from refold_protocol.errors import InvalidEventError
from refold_protocol.json_text import JsonText
from refold_protocol.session.codec import seal
from refold_protocol.session.events import Draft, RequestHeader, RequestHeaderDelta
from refold_protocol.session.header import canonical_header, diff_header, header_draft
from refold_protocol.session.messages import (
    CallConfig,
    EpochHeader,
    Message,
    SystemDelta,
    ToolSchema,
    encode_compact,
    text_content,
)
from tests.support.logs import HEADER

OTHER = EpochHeader(CallConfig("engine", "chain", "chat-completions"), "Be thorough.")
READ, EDIT = (ToolSchema(name, "Does it.", JsonText("{}")) for name in ("read", "edit"))
RULES = (Message("user", text_content("House rules")),)
BASE = EpochHeader(HEADER.config, "one\ntwo\nthree\nfour", (READ, EDIT), RULES)


def test_the_first_request_of_a_session_records_its_header_as_initial() -> None:
    assert header_draft(None, HEADER, anchored=False) == Draft(RequestHeader(HEADER, "initial"))


@pytest.mark.parametrize("wanted", [HEADER, OTHER], ids=["equal", "changed"])
def test_the_first_request_of_a_later_instance_records_its_header_even_when_it_is_equal(wanted: EpochHeader) -> None:
    assert header_draft(HEADER, wanted, anchored=False) == Draft(RequestHeader(wanted, "resume"))


def test_a_later_request_records_its_header_only_when_it_changed() -> None:
    same = EpochHeader(CallConfig("engine", "chain", "chat-completions"), HEADER.system, HEADER.tools)
    assert same is not HEADER
    assert header_draft(HEADER, same, anchored=True) is None
    changed = EpochHeader(HEADER.config, "Be thorough.", HEADER.tools)
    delta = RequestHeaderDelta(system=SystemDelta(0, ("Be thorough.",), 0))
    assert header_draft(HEADER, changed, anchored=True) == Draft(delta)


def test_without_a_header_in_the_log_there_is_nothing_to_change() -> None:
    assert header_draft(None, HEADER, anchored=True) == Draft(RequestHeader(HEADER, "initial"))


@pytest.mark.parametrize(("one", "other"), [(1, 1.0), (0.0, -0.0)])
def test_a_number_that_is_written_otherwise_is_no_change(one: float, other: float) -> None:
    old, new = (canonical_header(replace(BASE, config=replace(BASE.config, temperature=number))) for number in (one, other))
    assert encode_compact(old) == encode_compact(new)
    assert header_draft(old, new, anchored=True) is None


def test_a_delta_that_is_no_shorter_than_the_header_is_a_snapshot() -> None:
    after = EpochHeader(replace(BASE.config, model="random"), "five", (READ,), (*RULES, *RULES))
    delta = diff_header(replace(BASE, tools=None), after)
    assert delta is not None
    assert len(encode_compact(delta)) >= len(encode_compact(RequestHeader(after, "fallback")))
    draft = header_draft(replace(BASE, tools=None), after, anchored=True)
    assert draft == Draft(RequestHeader(after, "fallback"))


def test_the_shorter_of_both_is_written_and_the_whole_header_where_they_are_equal() -> None:
    written: list[tuple[int, type]] = []
    for kept in range(120):
        before, after = (EpochHeader(replace(BASE.config, model=model), "x" * kept + f"\n{model}") for model in ("one", "two"))
        delta = diff_header(before, after)
        draft = header_draft(before, after, anchored=True)
        assert draft is not None
        saved = len(encode_compact(RequestHeader(after, "fallback"))) - len(encode_compact(delta))
        written.append((saved, type(draft.data)))
    assert all((kind is RequestHeaderDelta) == (saved > 0) for saved, kind in written)
    assert {0, 1} <= {saved for saved, _ in written}


def test_what_no_line_can_hold_is_left_for_the_codec_to_refuse() -> None:
    after = replace(BASE, system="half \ud83d of a pair")
    draft = header_draft(BASE, after, anchored=True)
    assert draft == Draft(RequestHeader(after, "fallback"))
    assert draft is not None
    with pytest.raises(InvalidEventError, match="not lossless JSON"):
        seal(draft, 7, 0)


@pytest.mark.parametrize(
    "wrong",
    [RequestHeaderDelta(config=replace(BASE.config, model="another")), RequestHeaderDelta(system=SystemDelta(90, (), 9))],
    ids=["leads elsewhere", "does not fit"],
)
def test_the_writer_tries_its_own_delta_before_it_trusts_it(monkeypatch: pytest.MonkeyPatch, wrong: RequestHeaderDelta) -> None:
    after = replace(BASE, config=replace(BASE.config, model="random"))

    def faulty(*_: Any) -> RequestHeaderDelta:
        return wrong

    monkeypatch.setattr("refold_protocol.session.header.diff_header", faulty)
    assert header_draft(BASE, after, anchored=True) == Draft(RequestHeader(after, "fallback"))
