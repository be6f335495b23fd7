"""The end of a JSON value is found wherever its pieces were cut."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from refold_protocol.dialects.json_scan import JsonScan

_LEAVES = st.none() | st.integers() | st.text(st.sampled_from('ab"\\{}[]'), max_size=6)
_KEYS = st.text(st.sampled_from('a"\\{}'), max_size=3)
_VALUES = st.dictionaries(_KEYS, st.recursive(_LEAVES, st.lists, max_leaves=6), max_size=4)


@given(_VALUES, st.lists(st.integers(0, 200), max_size=5))
def test_a_value_is_whole_at_its_last_bracket_and_not_before(value: dict[str, object], cuts: list[int]) -> None:
    written = json.dumps(value)
    places = sorted({0, len(written) - 1, *(cut for cut in cuts if cut < len(written))})
    scan = JsonScan()
    for start, end in zip(places, [*places[1:], len(written)], strict=True):
        assert not scan.whole
        scan.feed(written[start:end])
    assert scan.whole
