"""Servers name the pieces of a call in many ways; each gives the right calls (cases A-07, A-08, A-09a, A-14a)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from refold_protocol.session.chunks import assemble
from refold_protocol.session.messages import BlockEnd, BlockStart, Chunk, FinishChunk, ToolCallBlock
from tests.support.chat_stream import DONE, arguments_in, call, calls, chunk, decode, text

PATH = '{"path":"a.txt"}'
A = ("c0", "read", PATH)
SHAPES: dict[str, tuple[list[dict[str, Any]], list[tuple[str | None, str, str]]]] = {
    "A-07a interleaved": (
        [
            call(0, "c0", "read", ""),
            call(1, "c1", "list", ""),
            call(1, None, None, '{"dir"'),
            call(0, None, None, '{"path"'),
            call(1, None, None, ':"."}'),
            call(0, None, None, ':"a.txt"}'),
        ],
        [("c0", "read", '{"path":"a.txt"}'), ("c1", "list", '{"dir":"."}')],
    ),
    "A-07b no index": (
        [call(None, "c0", "read", '{"path":"a.txt"}'), call(None, "c1", "list", '{"dir":"."}')],
        [("c0", "read", '{"path":"a.txt"}'), ("c1", "list", '{"dir":"."}')],
    ),
    "A-07b no index, in pieces": (
        [
            call(None, "c0", "read", '{"pa'),
            call(None, None, None, 'th":"a'),
            call(None, "c0", None, '.txt"}'),
            call(None, "c1", "list", "{}"),
            call(None, "c9", "", ""),
        ],
        [("c0", "read", '{"path":"a.txt"}'), ("c1", "list", "{}")],
    ),
    "A-07c index, no id": (
        [call(0, None, "read", '{"path":'), call(0, None, None, '"a.txt"}')],
        [(None, "read", '{"path":"a.txt"}')],
    ),
    "A-07d name in every entry": (
        [call(0, "c0", "read", '{"pa'), call(0, "c0", "read", 'th":"a'), call(0, "c0", "read", '.txt"}')],
        [("c0", "read", '{"path":"a.txt"}')],
    ),
    "A-07e a new id and an empty name each": (
        [call(0, "c0", "read", ""), *(call(0, f"d{at}", "", letter) for at, letter in enumerate('{"path":"a.txt"}'))],
        [("c0", "read", '{"path":"a.txt"}')],
    ),
    "A-07f arguments as an object": (
        [call(0, "c0", "read", {"path": "a.txt"})],
        [("c0", "read", '{"path":"a.txt"}')],
    ),
    "the same index for every call": (
        [call(0, "c0", "read", '{"path":"a.txt"}'), call(0, "c1", "list", "{"), call(0, None, None, "}")],
        [("c0", "read", '{"path":"a.txt"}'), ("c1", "list", "{}")],
    ),
    "no index, no id": (
        [call(None, None, "read", '{"path":"a.txt"}'), call(None, None, "list", "{}")],
        [(None, "read", '{"path":"a.txt"}'), (None, "list", "{}")],
    ),
    "id and arguments before the name": (
        [call(0, "c0", "", '{"pa'), call(0, None, "read", 'th":"a.txt"}')],
        [("c0", "read", '{"path":"a.txt"}')],
    ),
    "{} first": ([call(0, "c0", "read", "{}"), call(0, None, None, '{"path":'), call(0, None, None, '"a.txt"}')], [A]),
    "an object {} first": ([call(0, "c0", "read", {}), call(0, None, None, '{"path":"a.txt"}')], [A]),
    "{} in two pieces first": (
        [call(0, "c0", "read", "{"), call(0, None, None, "}"), call(0, None, None, '{"path":"a.txt"}')],
        [A],
    ),
    "{} alone": ([call(0, "c0", "list", "{"), call(0, None, None, " }")], [("c0", "list", "{ }")]),
    "whole arguments twice": (
        [call(0, "c0", "read", '{"path":'), call(0, None, None, '"a.txt"}'), call(0, None, None, PATH)],
        [A],
    ),
    "again under the next index": ([call(0, "c0", "read", PATH), call(1, "c0", "read", ""), call(1, "c0", None, PATH)], [A]),
    "again without an index": ([call(0, "c0", "read", PATH), call(None, "c0", "read", PATH)], [A]),
    "again, encoded twice": ([call(0, "c0", "read", PATH), call(0, "c0", "read", json.dumps(PATH))], [A]),
    "again, with other blanks": ([call(0, "c0", "read", PATH), call(1, "c0", "read", '{ "path": "a.txt" }')], [A]),
    "encoded twice": ([call(0, "c0", "read", '"{\\"path\\":'), call(0, None, None, '\\"a.txt\\"}"')], [A]),
    "a header again, without arguments": ([call(0, "c0", "read", PATH), call(1, "c0", "read", "")], [A]),
    "the same id, other arguments": (
        [call(0, "c0", "read", PATH), call(0, "c0", "read", '{"path":"b.txt"}')],
        [A, ("c0", "read", '{"path":"b.txt"}')],
    ),
    "one index, no ids, one tool": (
        [call(0, "", "read", PATH), call(0, "", "read", '{"path":"b.txt"}')],
        [(None, "read", PATH), (None, "read", '{"path":"b.txt"}')],
    ),
    "one index, no ids, two tools": (
        [call(0, None, "list", ""), call(0, None, "read", PATH)],
        [(None, "list", ""), (None, "read", PATH)],
    ),
    "braces in a text": (
        [call(0, "c0", "write", '{"text":"}'), call(0, None, None, '{"'), call(0, None, None, "}")],
        [("c0", "write", '{"text":"}{"}')],
    ),
    "other arguments without a name are no call that runs": (
        [call(0, "c0", "read", PATH), call(0, None, "", '{"path":"b.txt"}')],
        [("c0", "read", PATH + '{"path":"b.txt"}')],
    ),
    "no arguments": ([call(0, "c0", "read", None)], [("c0", "read", "")]),
    "null arguments": ([{"id": "c0", "function": {"name": "read", "arguments": None}}], [("c0", "read", "")]),
    "no index, interleaved": (
        [
            call(None, "c0", "read", ""),
            call(None, "c1", "list", ""),
            call(None, "c0", None, "{}"),
            call(None, "c1", "list", "[]"),
        ],
        [("c0", "read", "{}"), ("c1", "list", "[]")],
    ),
}


def calls_in(chunks: list[Chunk]) -> list[tuple[str | None, str | None, str]]:
    starts = [part for part in chunks if isinstance(part, BlockStart) and part.block == "tool-call"]
    return [(start.id, start.name, arguments_in(chunks, start.index)) for start in starts]


@pytest.mark.parametrize("shape", SHAPES)
def test_every_way_of_naming_calls_gives_the_right_ones(shape: str) -> None:
    entries, expected = SHAPES[shape]
    assert calls_in(decode(calls(*entries) + chunk({}, "tool_calls") + DONE)) == expected


@pytest.mark.parametrize("shape", SHAPES)
def test_all_entries_in_one_event_give_the_same_calls(shape: str) -> None:
    entries, expected = SHAPES[shape]
    assert calls_in(decode(chunk({"tool_calls": entries}) + chunk({}, "tool_calls") + DONE)) == expected


def test_calls_stay_open_until_the_end_and_end_in_order() -> None:
    chunks = decode(text("I look.") + calls(*SHAPES["A-07a interleaved"][0]) + chunk({}, "tool_calls") + DONE)
    assert [part for part in chunks if isinstance(part, BlockStart | BlockEnd | FinishChunk)] == [
        BlockStart(0, "text"),
        BlockEnd(0),
        BlockStart(1, "tool-call", "c0", "read"),
        BlockStart(2, "tool-call", "c1", "list"),
        BlockEnd(1),
        BlockEnd(2),
        FinishChunk("tool-calls"),
    ]


def test_text_after_a_call_is_a_further_block() -> None:
    reply = assemble(decode(text("a") + calls(call(0, "c", "f", "{}")) + text("b") + chunk({}, "tool_calls")))
    assert [type(block).__name__ for block in reply.content] == ["TextBlock", "ToolCallBlock", "TextBlock"]


@pytest.mark.parametrize("arguments", ["", "  ", "null"])
def test_a_call_without_arguments_assembles_to_an_empty_object(arguments: str) -> None:
    """A-08a."""
    reply = assemble(decode(calls(call(0, "c0", "now", arguments)) + chunk({}, "tool_calls") + DONE))
    assert reply.content == (ToolCallBlock("c0", "now", "{}"),)


def test_a_call_cut_by_the_output_limit_ends_with_the_reason_length() -> None:
    """A-09a: the loop drops the call for it."""
    stream = calls(call(0, "c0", "write", '{"path":"a","text":"abc')) + chunk({}, "length") + DONE
    assert decode(stream)[-1] == FinishChunk("length")


def test_a_server_that_says_stop_after_calls_means_tool_calls() -> None:
    chunks = decode(calls(call(0, "c0", "now", "{}")) + chunk({}, "stop") + DONE)
    assert chunks[-1] == FinishChunk("tool-calls", "stop")


def test_half_a_pair_in_arguments_is_repaired() -> None:
    """A-14a: as an escape in the arguments' own text (on assembling), and as a character (in the chunk)."""
    escape = assemble(decode(calls(call(0, "c", "f", '{"q":"\\ud83d"}')) + chunk({}, "tool_calls")))
    assert escape.content == (ToolCallBlock("c", "f", '{"q":"\\ufffd"}'),)
    parts = [
        b'data: {"choices":[{"delta":{"tool_calls":[{"index":0,"function":' + function + b"}]}}]}\n\n"
        for function in (b'{"name":"f","arguments":"{\\"q\\":\\"\\ud83d"}', b'{"arguments":"\\ude42\\"}"}')
    ]
    assert calls_in(decode(*parts, chunk({}, "tool_calls"))) == [(None, "f", '{"q":"🙂"}')]
    lone = decode(parts[0], calls(call(0, None, None, '"}')), chunk({}, "tool_calls"))
    assert calls_in(decode(parts[0], chunk({}, "length"))) == [(None, "f", '{"q":"\ufffd')]
    assert calls_in(lone) == [(None, "f", '{"q":"\ufffd"}')]


def test_numbers_in_an_arguments_object_keep_their_text() -> None:
    stream = b'data: {"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"name":"f","arguments":{"n":1.50e3}}}]}}]}\n\n'
    assert calls_in(decode(stream, chunk({}, "tool_calls"))) == [(None, "f", '{"n":1.50e3}')]
