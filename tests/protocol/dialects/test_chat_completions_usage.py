"""Usage is told once, at the end, from wherever the server put it, in disjoint buckets (cases A-03, A-12)."""

from __future__ import annotations

from typing import Any

import pytest

from refold_protocol.session.messages import FinishChunk, Usage, UsageChunk
from tests.support.chat_stream import DONE, chunk, decode, event, reply, usage_in


def told(prompt: int, completion: int, **more: Any) -> dict[str, Any]:
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion, **more}


HI = chunk({"content": "hi"})
STOP = chunk({}, "stop")
ALONE = event({"choices": [], "usage": told(40, 10)})
WITH_FINISH = chunk({"role": "assistant", "content": None}, "stop", usage=told(40, 10))
PLACES: dict[str, tuple[bytes, Usage]] = {
    "A-03a after the finish": (HI + STOP + ALONE + DONE, Usage(40, 10)),
    "A-03b with the finish": (HI + WITH_FINISH + DONE, Usage(40, 10)),
    "A-03c running totals": (
        chunk({"content": "h"}, usage=told(40, 1))
        + chunk({"content": "i"}, usage=told(40, 2))
        + chunk({}, "stop", usage=told(40, 3))
        + DONE,
        Usage(40, 3),
    ),
    "A-03d null on every chunk": (
        chunk({"content": "hi"}, usage=None) + chunk({}, "stop", usage=None) + ALONE + DONE,
        Usage(40, 10),
    ),
    "A-03d null after the known one": (HI + WITH_FINISH + chunk({}, usage=None) + DONE, Usage(40, 10)),
    "A-03e twice": (HI + WITH_FINISH + ALONE + DONE, Usage(40, 10)),
    "A-04a no marker": (HI + STOP + ALONE, Usage(40, 10)),
}


@pytest.mark.parametrize("place", PLACES)
def test_the_last_usage_is_told_once_before_the_finish(place: str) -> None:
    stream, usage = PLACES[place]
    chunks = decode(stream)
    assert chunks[-2:] == [UsageChunk(usage), FinishChunk("stop")]
    assert len(usage_in(chunks)) == 1


def test_a_first_chunk_without_choices_and_without_usage_is_harmless() -> None:
    """A-03f."""
    assert usage_in(decode(event({"choices": [], "prompt_filter_results": [{}]}) + reply("hi"))) == []


@pytest.mark.parametrize(
    "usage",
    [
        None,
        {},
        {"prompt_tokens": 40},
        {"completion_tokens": 3},
        {"prompt_tokens": "many", "completion_tokens": 1},
        [1, 2, 3],
        {"prompt_tokens": -1, "completion_tokens": 3},
        {"prompt_tokens": 40, "completion_tokens": -1},
        {"prompt_tokens": 2**53, "completion_tokens": 3},
        {"prompt_tokens": 40, "completion_tokens": 10**25},
    ],
)
def test_an_unknown_usage_is_not_told_as_zero(usage: Any) -> None:
    """A-03g, A-12: unknown is not zero."""
    assert usage_in(decode(HI + chunk({}, "stop", usage=usage) + DONE)) == []
    assert usage_in(decode(reply("hi"))) == []


@pytest.mark.parametrize(
    "more",
    [
        {"prompt_tokens_details": {"cached_tokens": 2400}},
        {"prompt_cache_hit_tokens": 2400, "prompt_cache_miss_tokens": 129},
        {"prompt_tokens_details": {"cached_tokens": None}, "prompt_cache_hit_tokens": 2400},
    ],
    ids=["A-12d", "A-12e", "both, one null"],
)
def test_cached_tokens_are_taken_out_of_the_prompt(more: dict[str, Any]) -> None:
    (found,) = usage_in(decode(HI + chunk({}, "stop", usage=told(2529, 16, **more)) + DONE))
    assert found.usage == Usage(129, 16, cache_read_tokens=2400)
    assert found.usage.prompt_tokens == 2529


def test_a_cached_count_above_the_prompts_cannot_be_inside_it() -> None:
    usage = {"prompt_tokens": 129, "completion_tokens": 16, "prompt_tokens_details": {"cached_tokens": 2400}}
    assert usage_in(decode(HI + chunk({}, "stop", usage=usage) + DONE))[0].usage.prompt_tokens == 2529


def test_the_total_says_what_a_cached_count_above_the_prompt_is() -> None:
    more = {"prompt_tokens_details": {"cached_tokens": 161}}
    inside = usage_in(decode(HI + chunk({}, "stop", usage=told(7, 8, **more)) + DONE))[0].usage
    assert (inside.prompt_tokens, inside.total_tokens) == (7, 15)
    outside = usage_in(decode(HI + chunk({}, "stop", usage=told(7, 8, **more) | {"total_tokens": 176}) + DONE))[0].usage
    assert (outside.prompt_tokens, outside.total_tokens) == (168, 176)


def test_the_total_says_where_thinking_is_counted() -> None:
    more = {"completion_tokens_details": {"reasoning_tokens": 196}}
    outside = usage_in(decode(HI + chunk({}, "stop", usage=told(291, 26, **more) | {"total_tokens": 513}) + DONE))[0].usage
    assert (outside.output_tokens, outside.reasoning_tokens, outside.total_tokens) == (222, 196, 513)
    inside = usage_in(decode(HI + chunk({}, "stop", usage=told(291, 222, **more)) + DONE))[0].usage
    assert (inside.output_tokens, inside.total_tokens) == (222, 513)


@pytest.mark.parametrize(
    "usage",
    [
        b'{"prompt_tokens":40,"completion_tokens":10,"tokens_per_second":Infinity}',
        b'{"prompt_tokens":40.0,"completion_tokens":"10","prompt_tokens_details":7}',
        b'{"prompt_tokens":40,"completion_tokens":10,"total_tokens":"many","completion_tokens_details":{"reasoning_tokens":NaN}}',
    ],
)
def test_members_of_another_type_leave_the_others(usage: bytes) -> None:
    stream = HI + STOP + b'data: {"choices":[],"usage":' + usage + b"}\n\n" + DONE
    assert usage_in(decode(stream)) == [UsageChunk(Usage(40, 10))]


def test_usage_in_the_choice_is_read() -> None:
    """Moonshot's place, and its name for what was cached."""
    last = {"index": 0, "delta": {}, "finish_reason": "stop", "usage": told(40, 10, cached_tokens=30)}
    assert usage_in(decode(HI + event({"choices": [last]}) + DONE)) == [UsageChunk(Usage(10, 10, cache_read_tokens=30))]


def test_written_and_thinking_tokens_are_told_where_known() -> None:
    more = {
        "prompt_tokens_details": {"cached_tokens": 10, "cache_write_tokens": 5},
        "completion_tokens_details": {"reasoning_tokens": 7},
    }
    stream = HI + chunk({}, "stop", usage=told(40, 9, **more)) + DONE
    assert usage_in(decode(stream))[0].usage == Usage(25, 9, 10, 5, 7)


def test_a_bucket_that_cannot_count_tokens_is_unknown_and_the_others_are_told() -> None:
    more = {
        "prompt_tokens_details": {"cached_tokens": -1, "cache_write_tokens": 2**53},
        "completion_tokens_details": {"reasoning_tokens": -1},
    }
    assert usage_in(decode(HI + chunk({}, "stop", usage=told(40, 9, **more)) + DONE))[0].usage == Usage(40, 9)
