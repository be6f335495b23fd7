"""Calls that a model wrote as text: taken where the whole reply is nothing else, and only for offered tools."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold_protocol.session.messages import ReasoningBlock, TextBlock, ToolCallBlock
from refold_protocol.session.text_calls import MAX_CALLS, calls_in

OFFERED = {"read_file", "list_files"}
ARGUMENTS: Any = {"path": "a.txt"}
CALL = json.dumps({"name": "read_file", "arguments": ARGUMENTS})


def found(text: str) -> list[tuple[str, Any]] | None:
    """Give names and arguments of the calls that a text is; None where it stays text."""
    content = calls_in((TextBlock(text),), OFFERED)
    if content is None:
        return None
    return [(block.name, json.loads(block.arguments)) for block in content if isinstance(block, ToolCallBlock)]


@pytest.mark.parametrize(
    "text",
    [
        CALL,
        f"\n {CALL}\n",
        f"```json\n{CALL}\n```",
        f"```\n{CALL}\n```",
        f"<tool_call>\n{CALL}\n</tool_call>",
        f"<tool_call>\n```json\n{CALL}\n```\n</tool_call>",
        f"<tool_call>{CALL}",
        f"<tools>{CALL}</tools>",
        f"```xml\n<tool_call>\n{CALL}\n</tool_call>\n```",
        f"[TOOL_CALLS] [{CALL}]",
        f"<|python_tag|>{CALL}<|eom_id|>",
        f"functools[{CALL}]",
        f"[{CALL}]",
        '{"name": "read_file", "parameters": {"path": "a.txt"}}',
        '{"name": "read_file", "arguments": "{\\"path\\": \\"a.txt\\"}"}',
        '{"type": "function", "function": {"name": "read_file", "arguments": {"path": "a.txt"}}, "id": "c1"}',
        '{"type": "function", "name": "read_file", "parameters": {"path": "a.txt"}}',
        '{"function": "read_file", "arguments": {"path": "a.txt"}}',
        '<function=read_file>{"path": "a.txt"}</function>',
        "<tool_call>\n<function=read_file>\n<parameter=path>\na.txt\n</parameter>\n</function>\n</tool_call>",
    ],
)
def test_a_reply_that_is_a_call_is_one(text: str) -> None:
    assert found(text) == [("read_file", ARGUMENTS)]


@pytest.mark.parametrize(
    "text", [f"{CALL}\n{CALL}", f"[{CALL}, {CALL}]", f"{CALL}; {CALL}", f"<tool_call>{CALL}</tool_call>" * 2]
)
def test_several_calls_stand_behind_each_other(text: str) -> None:
    assert found(text) == [("read_file", ARGUMENTS)] * 2


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        f"I call it like this: {CALL}",
        f"{CALL} and then I look.",
        f"```json\n{CALL}\n```\nThat is all.",
        '{"name": "launch", "arguments": {"path": "a.txt"}}',
        f'{CALL} {{"name": "launch", "arguments": {{}}}}',
        '{"name": "Ada", "age": 36}',
        '{"name": "read_file", "age": 36}',
        '{"name": "read_file", "arguments": {"path": "a"}, "parameters": {"path": "b"}}',
        '{"name": "read_file", "arguments": ["a.txt"]}',
        '{"name": "read_file", "arguments": "a.txt"}',
        '{"name": "read_file", "arguments": {"path": "a", "path": "b"}}',
        '{"name": "read_file", "arguments": {"path": NaN}}',
        '{"name": ["read_file"], "arguments": {}}',
        "[]",
        "[1]",
        "{}",
        CALL[:-1],
        f"```json\n{CALL}",
        "[" * 100_000,
        "<function=read_file>path</function>",
        CALL * (MAX_CALLS + 1),
    ],
)
def test_anything_else_stays_text(text: str) -> None:
    assert found(text) is None


def test_without_arguments_a_name_is_enough() -> None:
    assert found('{"name": "list_files"}') == [("list_files", {})]


def test_thinking_stays_and_a_structured_call_wins() -> None:
    thought = ReasoningBlock("I read it.")
    content = calls_in((thought, TextBlock(CALL)), OFFERED)
    assert content is not None
    assert content[0] == thought
    assert calls_in((TextBlock(CALL), ToolCallBlock("c", "read_file", "{}")), OFFERED) is None
    assert calls_in((TextBlock(CALL),), ()) is None


@given(st.text(alphabet=st.sampled_from('{}[]",:`<>=/\\ \nabenmrdfil_'), max_size=60))
def test_no_text_breaks_it(text: str) -> None:
    content = calls_in((TextBlock(text + CALL),), OFFERED)
    assert content is None or all(isinstance(block, ToolCallBlock) for block in content)
