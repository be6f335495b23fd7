"""Whatever a server sends of the forms that are known, in any pieces and cut anywhere: never a completed reply with less than
was sent, never a call with other arguments, always a next request that the strictest server takes."""

from __future__ import annotations

import itertools
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct

from refold_protocol.dialects.chat_completions import encode, resolve_options
from refold_protocol.json_text import JsonText
from refold_protocol.session.append_only_list import AppendOnlyList
from refold_protocol.session.chunks import assemble, partial_content, with_call_ids, without_calls
from refold_protocol.session.messages import (
    Block,
    CallConfig,
    EpochHeader,
    Message,
    ReasoningBlock,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    text_content,
)
from refold_protocol.session.request import Request
from tests.support.chat_stream import DONE, call, chunk, decode_until_failure, event, reasoning_in, text_in
from tests.support.strict_server import refusal

_TEXTS = st.text(st.sampled_from('ab }{"\\\n那🙂'), min_size=1, max_size=8)
_FORMS = ["pieces", "no index", "one index", "empty ids", "object", "braces", "twice", "again", "encoded"]
_NAMES = st.sampled_from(["read_file", "list", "functions.read", "lesen_ä", " ", "x" * 70])
_ARGUMENTS = st.dictionaries(st.sampled_from(["path", "text"]), _TEXTS, max_size=2)


class Sent(Struct, frozen=True):
    """What a server means to say, and the bytes with which it says it."""

    data: bytes
    text: str
    reasoning: str
    calls: tuple[tuple[str, dict[str, str]], ...]


def pieces(draw: st.DrawFn, text: str) -> list[str]:
    """Cut a text anywhere."""
    cuts = sorted({0, len(text), *draw(st.lists(st.integers(0, len(text)), max_size=3))})
    return [text[start:end] for start, end in itertools.pairwise(cuts)]


@st.composite
def entries(draw: st.DrawFn, form: str, at: int, name: str, arguments: dict[str, str]) -> list[dict[str, Any]]:
    """Give the entries with which one call comes, in one of the forms of real servers; a server keeps to its own."""
    written = json.dumps(arguments, ensure_ascii=draw(st.booleans()))
    identity = f"id-{at}"
    match form:
        case "pieces":
            rest = [call(at, draw(st.sampled_from([None, "", identity])), None, part) for part in pieces(draw, written)]
            return [call(at, identity, name, ""), *rest]
        case "no index":
            return [call(None, identity, name, ""), *(call(None, identity, None, part) for part in pieces(draw, written))]
        case "one index":
            return [call(0, identity, name, ""), *(call(0, None, None, part) for part in pieces(draw, written))]
        case "empty ids":
            return [call(at, "", name, written)]
        case "object":
            return [call(at, identity, name, arguments)]
        case "braces":
            return [call(at, identity, name, "{}"), *(call(at, None, None, part) for part in pieces(draw, written))]
        case "twice":
            return [*(call(at, identity, name, part) for part in pieces(draw, written)), call(at, None, None, written)]
        case "again":
            return [call(at, identity, name, written), call(at + 50, identity, name, ""), call(at + 50, None, None, written)]
        case _:
            return [call(at, identity, name, json.dumps(written))]


@st.composite
def replies(draw: st.DrawFn) -> Sent:
    """Give a whole stream."""
    thought, said = draw(st.just("") | _TEXTS), draw(st.just("") | _TEXTS)
    wanted = tuple(draw(st.lists(st.tuples(_NAMES, _ARGUMENTS), max_size=3)))
    data = draw(st.sampled_from([b"", chunk({"role": "assistant", "content": ""}), b": wait\n\n", event({"choices": []})]))
    for part in pieces(draw, thought):
        data += chunk(draw(st.sampled_from([{"reasoning": part}, {"content": [{"type": "thinking", "thinking": part}]}])))
    for part in pieces(draw, said):
        data += chunk(draw(st.sampled_from([{"content": part}, {"content": [{"type": "text", "text": part}]}])))
    form = draw(st.sampled_from(_FORMS))
    for at, (name, arguments) in enumerate(wanted):
        for entry in draw(entries(form, at, name, arguments)):
            data += chunk({"tool_calls": [entry]})
    finish = draw(st.sampled_from(["stop", "tool_calls" if wanted else "end_turn", "length", "abort", "odd", None]))
    data += chunk({}, finish) + draw(st.sampled_from([DONE, b"", event({"choices": [], "usage": None}) + DONE]))
    return Sent(draw(st.sampled_from([data, data.replace(b"\n", b"\r\n")])), said, thought, wanted)


@st.composite
def turns(draw: st.DrawFn, number: int) -> list[Message]:
    """Play a turn with one step as the loop records it, judge what came of its stream, and give its messages."""
    sent = draw(replies())
    end = draw(st.just(len(sent.data)) | st.integers(0, len(sent.data)))
    cuts = sorted({0, end, *draw(st.lists(st.integers(0, end), max_size=4))})
    writes = [sent.data[start:stop] for start, stop in itertools.pairwise(cuts)]
    chunks, failure = decode_until_failure(*writes, cut=draw(st.booleans()))
    reply = assemble(chunks)
    prompt = [Message("user", text_content(draw(_TEXTS))) for _ in range(draw(st.integers(1, 2)))]
    content: tuple[Block, ...]
    if failure is not None or reply.finish is None:
        assert sent.text.startswith(text_in(chunks).rstrip("\ufffd"))
        content = partial_content(reply.content) or ()
    else:
        assert (text_in(chunks), reasoning_in(chunks)) == (sent.text, sent.reasoning)
        capped = reply.finish not in ("stop", "tool-calls", "other")
        content = without_calls(reply.content) if capped else with_call_ids(reply.content, number, 1, lambda _: False)
    calls = [block for block in content if isinstance(block, ToolCallBlock)]
    if failure is None and calls:
        assert [(block.name, json.loads(block.arguments)) for block in calls] == list(sent.calls)
    results = [
        Message("user", (ToolResultBlock(block.id, text_content(draw(st.just("") | _TEXTS)), False),)) for block in calls
    ]
    visible = any(isinstance(block, TextBlock | ReasoningBlock) and block.text.strip() for block in content) or calls
    context = [Message("user", text_content("<context/>"))] * draw(st.integers(0, 1))
    return [*prompt, *([Message("assistant", content)] if visible else []), *results, *context]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_every_stream_ends_as_what_it_was_and_the_next_request_is_taken(data: st.DataObject) -> None:
    history: list[Message] = []
    for number in range(data.draw(st.integers(1, 3))):
        history += data.draw(turns(number))
    history.append(Message("user", text_content("next")))
    config = CallConfig("p", "m", "chat-completions", dialect_options=resolve_options({}))
    prefix = (Message("user", text_content("Rules")),) * data.draw(st.integers(0, 2))
    system = data.draw(st.none() | st.just("Be brief."))
    header = EpochHeader(config, system, None, prefix or None)
    assert refusal(encode(Request(header, AppendOnlyList(history)), {})) is None


@given(st.lists(st.sampled_from(["user", "assistant"]), max_size=5))
def test_roles_of_any_order_are_sent_in_turn(roles: list[str]) -> None:
    """Also a history that begins with the assistant, or has two of its messages in a row."""
    history = [Message(role, text_content("x")) for role in roles] + [Message("user", text_content("next"))]
    config = CallConfig("p", "m", "chat-completions", dialect_options=JsonText(resolve_options({})))
    assert refusal(encode(Request(EpochHeader(config), AppendOnlyList(history)), {})) is None


def test_the_strictest_server_refuses_what_real_ones_refuse() -> None:
    old = CallConfig("p", "m", "chat-completions")
    twice = [Message("user", text_content("a")), Message("user", text_content("b"))]
    assert "alternate" in (refusal(encode(Request(EpochHeader(old), AppendOnlyList(twice)), {})) or "")
    asked = [Message("user", text_content("a")), Message("assistant", (ToolCallBlock("call_1_1_1", "f", "{}"),))]
    asked.append(Message("user", (ToolResultBlock("call_1_1_1", text_content("x"), False),)))
    assert "call_1_1_1" in (refusal(encode(Request(EpochHeader(old), AppendOnlyList(asked)), {})) or "")
