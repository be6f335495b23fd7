"""The digest chain depends on the lines and their order, and on nothing else."""

from __future__ import annotations

from hashlib import sha256

from hypothesis import given
from hypothesis import strategies as st

from refold_protocol.session.codec import CHAIN_START, chain, chain_step
from tests.support.event_examples import EXAMPLES, example

LINES = st.lists(st.binary(max_size=20), max_size=12)


def test_the_chain_of_an_empty_log_is_the_digest_of_the_words_refold_log_0() -> None:
    assert chain([]) == CHAIN_START
    assert CHAIN_START.hex() == "d75e4bc4c2fd8dc9f48ef5c54f1c225ce8d5202330f748a409c7aed3d0188687"


LATER = ("plugin/failed", "model/window")
"""Event types that came after the first release, in the order in which they came."""


def test_the_chain_over_the_golden_lines_never_changes() -> None:
    """Invariant: The digest chain depends on the lines alone."""
    first = chain(example(name).line for name in sorted(EXAMPLES) if name not in LATER)
    assert first.hex() == "4bf3baf5ce5fee549f194296ad0aaf49251288d55beb548e25a1c2b31bf6da8b"
    later = chain((example(name).line for name in LATER), first)
    assert later.hex() == "2564e4f1ca899bdbe43dce84dc2220604fbb285e9b1b5f63d0442084a3370bb6"


@given(LINES, st.binary(max_size=20))
def test_a_digest_is_made_of_the_one_before_and_the_line(lines: list[bytes], line: bytes) -> None:
    before = chain(lines)
    assert chain([*lines, line]) == chain_step(before, line) == sha256(before + line).digest()


@given(LINES, st.data())
def test_a_chain_goes_on_from_any_place(lines: list[bytes], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(lines)))
    assert chain(lines[cut:], chain(lines[:cut])) == chain(lines)


@given(LINES.filter(lambda lines: len(lines) > 0), st.data())
def test_a_changed_line_changes_every_digest_after_it(lines: list[bytes], data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(lines) - 1))
    changed = [*lines[:place], lines[place] + b"x", *lines[place + 1 :]]
    assert all(chain(lines[: end + 1]) != chain(changed[: end + 1]) for end in range(place, len(lines)))


@given(LINES.filter(lambda lines: len(lines) > 0))
def test_a_cut_tail_changes_the_digest(lines: list[bytes]) -> None:
    assert chain(lines[:-1]) != chain(lines)
