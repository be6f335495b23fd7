"""A chat-completions body falls into named segments, for any request, without gaps."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from msgspec.structs import replace

from refold_protocol.dialects.chat_completions import CHAT_COMPLETIONS, encode
from refold_protocol.dialects.growing_body import KINDS, Segment
from refold_protocol.errors import BlobUnknownError
from refold_protocol.json_text import JsonText
from refold_protocol.session.append_only_list import AppendOnlyList
from refold_protocol.session.messages import ImageBlock, Message, ReasoningBlock, ToolSchema, text_content
from refold_protocol.session.request import Request
from tests.support.requests import BLOBS, PNG, header, request, requests, user

TOOLS = (ToolSchema("look", "Look.", JsonText("{}")), ToolSchema("read", "Read.", JsonText("{}")))


def parts(asked: Request) -> list[tuple[str, str]]:
    """Give each segment's words with its bytes as text."""
    body = encode(asked, BLOBS)
    return [(segment.words, body[segment.start : segment.end].decode()) for segment in cut(asked)]


def cut(asked: Request) -> tuple[Segment, ...]:
    return CHAT_COMPLETIONS.segments(asked, BLOBS)


@given(requests())
def test_segments_tile_the_body_of_any_request(asked: Request) -> None:
    """Invariant: Segments tile the body of any request."""
    found = cut(asked)
    assert found[0].start == 0
    assert all(one.end == next_one.start for one, next_one in pairwise(found))
    assert all(segment.start < segment.end for segment in found)
    assert found[-1].end == len(encode(asked, BLOBS))


@given(requests())
def test_segments_stand_in_the_order_of_what_a_provider_reads(asked: Request) -> None:
    """Settings stand before and behind the tools; everything else has one place."""
    kinds = [segment.kind for segment in cut(asked)]
    others = [KINDS.index(kind) for kind in kinds if kind != "config"]
    assert others == sorted(others)
    assert kinds[-1] == "tail"
    assert encode(asked, BLOBS).endswith(b"]}")


@given(requests(("as-they-come",)))
def test_a_message_segment_holds_what_its_message_became(asked: Request) -> None:
    body = encode(asked, BLOBS)
    messages = {"prefix": asked.header.message_prefix or (), "history": tuple(asked.history)}
    for segment in cut(asked):
        if segment.kind in messages:
            assert segment.index is not None
            alone = Request(
                replace(asked.header, system=None, message_prefix=None), AppendOnlyList([messages[segment.kind][segment.index]])
            )
            opening = encode(Request(alone.header, AppendOnlyList()), BLOBS).removesuffix(b"]}")
            text = body[segment.start : segment.end].removeprefix(b",")
            assert opening + text + b"]}" == encode(alone, BLOBS)


def test_the_segments_of_a_whole_body() -> None:
    plain = header("Be brief.", TOOLS)
    config = replace(plain.config, temperature=0.5, extra=JsonText('{ "seed": 7 }'))
    asked = Request(
        replace(plain, config=config, message_prefix=(user("Rules"),)), AppendOnlyList([user("Why?"), user("Well?")])
    )
    found = parts(asked)
    assert [words for words, _ in found] == [
        "config model",
        "config stream",
        "config stream_options",
        "config temperature",
        "tool look",
        "tool read",
        "config extra",
        "config messages",
        "the system text",
        "prefix message 1",
        "history message 1",
        "history message 2",
        "the closing brackets",
    ]
    assert dict(found)["tool read"].startswith(',{"type":"function"')
    assert dict(found)["config extra"] == ',"seed": 7'
    assert dict(found)["history message 2"] == ',{"role":"user","content":"Well?"}'
    assert json.loads("".join(text for _, text in found)) == json.loads(encode(asked, BLOBS))


def test_a_message_that_becomes_nothing_has_no_segment_and_keeps_its_number() -> None:
    silent = Message("assistant", (ReasoningBlock("hm"),))
    found = [segment.index for segment in cut(request(user("a"), silent, user("b"))) if segment.kind == "history"]
    assert found == [0, 2]


def test_a_missing_image_is_an_error_here_too() -> None:
    with pytest.raises(BlobUnknownError):
        CHAT_COMPLETIONS.segments(request(Message("user", (*text_content("see"), ImageBlock("image/png", PNG)))), {})
