"""What ends tasks and processes, out of a tool whose call nobody cancelled: it is that call's result, and no more."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from refold_server.tools.execute import execute
from refold_server.tools.registry import Registry
from refold_server.tools.scripted import ScriptedParams, ScriptedTool
from refold_server.tools.tool import ToolOutput
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


async def group() -> None:
    raise BaseExceptionGroup("two", [SystemExit(3), SystemExit(4)])


@pytest.mark.parametrize("end", [cancelled_future, cancelled_task, generator_exit, group])
async def test_it_is_the_result_of_its_call(end: Callable[[], Awaitable[None]]) -> None:
    async def body(_: ScriptedParams) -> ToolOutput:
        await end()
        raise AssertionError

    answer = await execute(Registry((ScriptedTool(body),)), "scripted", '{"needThis":"x"}', context(Path("/")))
    assert code(answer) == "TOOL_FAILED"
    assert text(answer).startswith("scripted failed: ")


async def test_an_interrupt_of_the_process_is_none() -> None:
    async def body(_: ScriptedParams) -> ToolOutput:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await execute(Registry((ScriptedTool(body),)), "scripted", '{"needThis":"x"}', context(Path("/")))
