"""Small questions that content and usage answer by themselves."""

from __future__ import annotations

from refold_protocol.session.messages import ImageBlock, ReasoningBlock, TextBlock, Usage, encode_compact, text_content, text_of


def test_the_text_of_content_is_its_text_blocks_and_nothing_else() -> None:
    content = (TextBlock("one"), ReasoningBlock("hm"), ImageBlock("image/png", "00"), TextBlock("two"))
    assert text_of(content) == "one\ntwo"
    assert text_of(()) == ""
    assert text_of(text_content("a\nb")) == "a\nb"


def test_tokens_add_up_without_counting_reasoning_twice() -> None:
    usage = Usage(10, 5, 3, 2, 4)
    assert usage.prompt_tokens == 15
    assert usage.total_tokens == 20


def test_an_unknown_bucket_is_left_out_of_json_and_counts_as_nothing() -> None:
    usage = Usage(10, 5, cache_read_tokens=0)
    assert encode_compact(usage) == b'{"inputTokens":10,"outputTokens":5,"cacheReadTokens":0}'
    assert Usage(10, 5).prompt_tokens == 10
