"""A call's way from the model's text to a result: whatever a model writes and a tool does, it is a result."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, cast

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold_protocol.json_text import JsonText
from refold_protocol.session.messages import TextBlock
from refold_server.tools.session_tools import BUILT_IN, ToolTable, built_in_tools
from refold_server.tools.tool import ToolOutput, read_arguments, text_output
from refold_server.tools.tool_failure import CODES, ToolFailure
from refold_server.tools.tool_output import NO_OUTPUT
from refold_server.tools.tool_runner import ToolAnswer, execute
from tests.support.scripted_tool import ScriptedParams, ScriptedTool
from tests.support.tool_calls import call, code, context, fill, text


def _tool(result: ToolOutput | BaseException) -> ScriptedTool:
    async def body(_: ScriptedParams) -> ToolOutput:
        if isinstance(result, BaseException):
            raise result
        return result

    return ScriptedTool(body)


def _endless() -> ScriptedTool:
    async def body(_: ScriptedParams) -> ToolOutput:
        await anyio.sleep_forever()
        raise AssertionError

    return ScriptedTool(body)


async def _run(tool: ScriptedTool, arguments: str = '{"needThis":"x"}', **settings: Any) -> ToolAnswer:
    return await execute(ToolTable((tool,)), "scripted", arguments, context(Path("/"), **settings))


@pytest.mark.anyio
async def test_an_unknown_tool_is_a_result_that_lists_the_known_ones() -> None:
    answer = await execute(built_in_tools(), "read", "{}", context(Path("/")))
    assert code(answer) == "UNKNOWN_TOOL"
    known = "list_files, read_file, search_text, write_file, edit_file"
    assert text(answer) == f"there is no tool 'read'; the tools are: {known}"
    none = await execute(built_in_tools(()), "read", "{}", context(Path("/")))
    assert text(none).endswith("the tools are: none")


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ("{}", "missing required field `needThis`"),
        ('{"needThis":1}', "Expected `str`, got `int` - at `$.needThis`"),
        ('{"needThis":"x","number":"three"}', "at `$.number`"),
        ('{"needThis":"x","number":"03"}', "at `$.number`"),
        ('{"needThis":"x","number":"3.5"}', "at `$.number`"),
        ('{"needThis":"x","number":1.5}', "at `$.number`"),
        ('{"needThis":"x","number":true}', "at `$.number`"),
        ('{"needThis":"x","other":1}', "unknown field `other`"),
        ('{"need_this":"x"}', "unknown field `need_this`"),
        ("[]", "must be a JSON object"),
        ('"text"', "must be a JSON object"),
        ("", "not strict JSON"),
        ('{"needThis":"x"', "not strict JSON"),
        ('{"needThis":"x"} trailing', "not strict JSON"),
    ],
)
async def test_wrong_arguments_are_named_and_the_tool_does_not_run_a_08c(arguments: str, named: str) -> None:
    tool = _tool(text_output("ran"))
    answer = await _run(tool, arguments)
    assert code(answer) == "INVALID_ARGUMENTS"
    assert named in text(answer)
    assert tool.runs == []


@pytest.mark.anyio
@pytest.mark.parametrize("number", ["3", " 3 ", "-3"])
async def test_a_number_that_is_written_as_text_is_one_and_a_text_of_digits_stays_text(number: str) -> None:
    tool = _tool(text_output("ran"))
    await _run(tool, json.dumps({"needThis": "42", "number": number}))
    (params,) = tool.runs
    assert (params.need_this, params.number) == ("42", int(number))


@pytest.mark.anyio
async def test_a_missing_parameter_is_told_with_those_that_there_are_a_08c() -> None:
    answer = await _run(_tool(text_output("ran")), "{}")
    assert text(answer) == (
        "wrong arguments of scripted: missing required field `needThis`. It takes needThis (required), number."
    )


@pytest.mark.anyio
@pytest.mark.parametrize("number", ["NaN", "1e999", "-Infinity", "Infinity"])
async def test_numbers_that_json_does_not_have_are_refused_with_a_reason_a_15c(number: str) -> None:
    tool = _tool(text_output("ran"))
    answer = await _run(tool, f'{{"needThis":"x","number":{number}}}')
    assert code(answer) == "INVALID_ARGUMENTS"
    assert number.lstrip("-") in text(answer)
    assert tool.runs == []


@pytest.mark.anyio
async def test_a_key_that_comes_twice_is_refused_with_a_reason_a_15d(tmp_path: Path) -> None:
    fill(tmp_path, {"a.txt": "a", "b.txt": "b"})
    answer = await execute(built_in_tools(), "read_file", '{"path":"a.txt","path":"b.txt"}', context(tmp_path))
    assert code(answer) == "INVALID_ARGUMENTS"
    assert "'path' stands twice" in text(answer)


@pytest.mark.anyio
async def test_half_a_surrogate_pair_in_arguments_is_refused_a_14a() -> None:
    answer = await _run(_tool(text_output("ran")), '{"needThis":"\\ud83d"}')
    assert code(answer) == "INVALID_ARGUMENTS"
    assert "surrogate" in text(answer)


@pytest.mark.anyio
async def test_arguments_that_are_nested_absurdly_deep_are_refused() -> None:
    answer = await _run(_tool(text_output("ran")), '{"needThis":' + "[" * 100_000 + "]" * 100_000 + "}")
    assert code(answer) == "INVALID_ARGUMENTS"


@pytest.mark.anyio
async def test_a_good_call_gets_its_params_once() -> None:
    tool = _tool(text_output("done"))
    answer = await _run(tool, ' {"needThis":"é🙂","number":null} ')
    assert answer == ToolAnswer((TextBlock("done"),), is_error=False)
    assert tool.runs == [ScriptedParams("é🙂")]


class _OddError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("an error that cannot be printed")


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("first line\nsecond line"), "scripted failed: ValueError: first line"),
        (RuntimeError(), "scripted failed: RuntimeError"),
        (TimeoutError("its own"), "scripted failed: TimeoutError: its own"),
        (ExceptionGroup("several", [ValueError()]), "scripted failed: ExceptionGroup: several (1 sub-exception)"),
        (SystemExit(3), "scripted failed: SystemExit: 3"),
        (_OddError(), "scripted failed: _OddError"),
        (ValueError("\ud83d"), "scripted failed: ValueError: \ufffd"),
    ],
)
async def test_whatever_a_tool_raises_is_a_result_of_one_line(error: BaseException, said: str) -> None:
    answer = await _run(_tool(error))
    assert code(answer) == "TOOL_FAILED"
    assert text(answer) == said
    assert answer.error is not None
    assert answer.error.name == type(error).__name__


@pytest.mark.anyio
async def test_a_long_complaint_is_shortened() -> None:
    assert len(text(await _run(_tool(ValueError("x" * 100_000))))) < 1_000


@pytest.mark.anyio
async def test_a_tool_says_itself_how_it_failed() -> None:
    answer = await _run(_tool(ToolFailure("DENIED", "Forbidden", "not that one")))
    assert code(answer) == "DENIED"
    assert text(answer) == "not that one"


@pytest.mark.anyio
async def test_a_tool_that_does_not_end_is_stopped() -> None:
    stopped: list[str] = []

    async def body(_: ScriptedParams) -> ToolOutput:
        try:
            await anyio.sleep_forever()
        finally:
            stopped.append("yes")
        raise AssertionError

    answer = await _run(ScriptedTool(body), time_limit_s=0.01)
    assert code(answer) == "TIMED_OUT"
    assert "0.01 s" in text(answer)
    assert stopped == ["yes"]


@pytest.mark.anyio
async def test_cancellation_is_not_swallowed() -> None:
    started = anyio.Event()
    answers: list[ToolAnswer] = []

    async def body(_: ScriptedParams) -> ToolOutput:
        started.set()
        await anyio.sleep_forever()
        raise AssertionError

    async def run() -> None:
        answers.append(await _run(ScriptedTool(body)))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        await started.wait()
        tasks.cancel_scope.cancel()
    assert answers == []
    assert tasks.cancel_scope.cancelled_caught


@pytest.mark.anyio
@pytest.mark.parametrize("content", [(), (TextBlock(""),), (TextBlock("\n"),)])
async def test_no_output_is_a_fixed_note_b_03d(content: tuple[TextBlock, ...]) -> None:
    assert text(await _run(_tool(ToolOutput(content)))) == NO_OUTPUT


@pytest.mark.anyio
async def test_output_is_bounded_by_default_at_fifty_thousand_characters_e_03() -> None:
    answer = await _run(_tool(text_output("🙂" * (10 << 20))))
    assert 49_000 < len(text(answer)) <= 50_000
    assert "characters left out here" in text(answer)
    assert text(answer).encode().decode() == text(answer)


@pytest.mark.anyio
@pytest.mark.parametrize("content", ["text", [1], (b"bytes",), None])
async def test_output_that_is_none_is_the_tools_failure(content: object) -> None:
    answer = await _run(_tool(ToolOutput(cast("Any", content))))
    assert code(answer) == "TOOL_FAILED"


@pytest.mark.anyio
async def test_meta_that_is_not_strict_json_becomes_text_a_15e() -> None:
    async def meta(text: str) -> str | None:
        return (await _run(_tool(ToolOutput((TextBlock("x"),), JsonText(text))))).meta

    assert await meta('{"number":1}') == '{"number":1}'
    assert await meta('{"number":NaN}') == '"{\\"number\\":NaN}"'
    assert await meta("\ud83d") == '"\ufffd"'


@pytest.mark.anyio
async def test_every_code_that_is_told_is_in_the_table(tmp_path: Path) -> None:
    fill(tmp_path, {"a": "", "c": "x"})
    told = {
        code(await call(tmp_path, name, **arguments))
        for name, arguments in (
            ("none", {}),
            ("read_file", {}),
            ("read_file", {"path": ".."}),
            ("read_file", {"path": "b"}),
            ("write_file", {"path": "c", "content": "written over unread"}),
        )
    }
    told.add(code(await _run(_endless(), time_limit_s=0.01)))
    assert told == set(CODES)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
_PARAMS = st.dictionaries(st.sampled_from(["path", "pattern", "regex", "startLine", "endLine", "x"]), _JSON, max_size=4)


@given(
    tool=st.sampled_from(BUILT_IN),
    arguments=st.text(st.characters(), max_size=40) | _JSON.map(json.dumps) | _PARAMS.map(json.dumps),
)
def test_no_text_of_a_model_raises_anything_but_a_failure(tool: Any, arguments: str) -> None:
    try:
        outcome = read_arguments(tool.schema.name, arguments, tool.params)
    except ToolFailure as failure:
        failure.message.encode()
        outcome = failure.code
    assert outcome == "INVALID_ARGUMENTS" or isinstance(outcome, tool.params)


@given(name=st.text(st.characters(), max_size=20), arguments=st.text(st.characters(), max_size=20))
def test_whatever_is_called_gives_a_result_that_can_be_recorded(name: str, arguments: str) -> None:
    answer = anyio.run(execute, built_in_tools(), name, arguments, context(Path(sys.prefix)))
    assert answer.is_error
    text(answer).encode()
