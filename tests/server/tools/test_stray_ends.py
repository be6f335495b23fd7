"""What ends tasks and processes, out of a tool whose call nobody cancelled: it is that call's result, and no more."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from msgspec import Struct

from refold_server.plugins.plugin_tools import tool
from refold_server.tools.session_tools import ToolTable
from refold_server.tools.tool import ToolContext, ToolOutput
from refold_server.tools.tool_failure import Interrupted, first_line
from refold_server.tools.tool_runner import execute, propose
from tests.support.scripted_tool import ScriptedParams, ScriptedTool
from tests.support.tool_calls import code, context, text

pytestmark = pytest.mark.anyio


async def cancelled_future() -> None:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


async def cancelled_task() -> None:
    task = asyncio.create_task(asyncio.sleep(3_600))
    task.cancel()
    await task


async def generator_exit() -> None:
    raise GeneratorExit


async def interrupt() -> None:
    raise KeyboardInterrupt


class SpeechlessError(BaseException):
    """An exception that wants an end of the process when it is printed."""

    def __str__(self) -> str:
        raise KeyboardInterrupt


async def speechless() -> None:
    raise SpeechlessError


async def group() -> None:
    raise BaseExceptionGroup("two", [SystemExit(3), SystemExit(4)])


@pytest.mark.parametrize("end", [cancelled_future, cancelled_task, generator_exit, group, interrupt, speechless])
async def test_it_is_the_result_of_its_call(end: Callable[[], Awaitable[None]]) -> None:
    async def body(_: ScriptedParams) -> ToolOutput:
        await end()
        raise AssertionError

    answer = await execute(ToolTable((ScriptedTool(body),)), "scripted", '{"needThis":"x"}', context(Path("/")))
    assert code(answer) == "TOOL_FAILED"
    assert text(answer).startswith("scripted failed: ")


async def test_a_persons_interrupt_is_none() -> None:
    async def body(_: ScriptedParams) -> ToolOutput:
        raise Interrupted

    with pytest.raises(Interrupted):
        await execute(ToolTable((ScriptedTool(body),)), "scripted", '{"needThis":"x"}', context(Path("/")))


@pytest.mark.parametrize(
    "kind", [KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError, KeyError, SpeechlessError]
)
async def test_out_of_arguments_that_check_themselves_it_is_the_result_of_the_call_too(kind: type[BaseException]) -> None:
    class Checked(Struct, frozen=True, forbid_unknown_fields=True):
        def __post_init__(self) -> None:
            raise kind

    async def run(_: ToolContext, params: Checked) -> str:
        raise AssertionError(params)

    checked = tool("checked", "Checks itself.", Checked, run)
    answer = await execute(ToolTable((checked,)), "checked", "{}", context(Path("/")))
    assert code(answer) == "TOOL_FAILED"
    assert text(answer) == f"checked failed to read its arguments: {kind.__name__}"
    proposed = await propose(ToolTable((checked,)), "checked", "{}", context(Path("/")))
    assert proposed == answer


def test_a_persons_interrupt_while_an_exception_is_printed_is_none() -> None:
    class InterruptingError(Exception):
        def __str__(self) -> str:
            raise Interrupted

    with pytest.raises(Interrupted):
        first_line(InterruptingError())
