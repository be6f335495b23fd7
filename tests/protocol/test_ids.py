"""What a writer's name says."""

from __future__ import annotations

import pytest

from refold_protocol.ids import WriterId, writer_tail


@pytest.mark.parametrize(("name", "tail"), [("0198f3a2-0000-7000-8000-000000000001.41", 41), ("w.-1", -1), ("a.b.7", 7)])
def test_a_writers_name_tells_the_tail_at_which_it_opened(name: str, tail: int) -> None:
    assert writer_tail(WriterId(name)) == tail


@pytest.mark.parametrize("name", ["", "41", "0198f3a2", "w.", "w.x", "w.4.5.x"])
def test_text_that_is_no_writers_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"writer|invalid literal"):
        writer_tail(WriterId(name))
