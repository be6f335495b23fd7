"""One call, run: from a name and the model's text to an answer that can be recorded as it is.

Whatever a model writes and whatever a tool does, the answer is a result; a tool never fails a turn. Only cancellation
passes through. Must not know the log: the loop records the call before and the answer after.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import anyio
from msgspec import Struct

from refold_protocol.errors import InvalidJsonError
from refold_protocol.json_text import JsonText, check_json, compact_json, repair_surrogates
from refold_protocol.session.events import ApprovalSubject, ToolErrorInfo
from refold_protocol.session.messages import ImageBlock, ResultBlock, TextBlock, text_content
from refold_server.secret_text import SECRETS
from refold_server.tools.session_tools import AT_TIMES, ToolTable
from refold_server.tools.tool import Proposal, ProposingTool, Tool, ToolContext, ToolOutput, read_arguments
from refold_server.tools.tool_failure import ToolFailure, first_line, is_own_fault
from refold_server.tools.tool_output import settle

_MAX_REASON = 1_000
"""Characters of an unexpected exception's message that the model is told."""


class ToolAnswer(Struct, frozen=True):
    """What a `tool/result` records: content is bounded, never empty, and exactly what the model will see."""

    content: tuple[ResultBlock, ...]
    is_error: bool
    error: ToolErrorInfo | None = None
    meta: JsonText | None = None


class PreparedCall(Struct, frozen=True):
    """A call whose tool exists and whose arguments were read: what is approved is what runs."""

    tool: Tool
    params: Struct


def prepare(registry: ToolTable, name: str, arguments: str) -> PreparedCall:
    """Find the tool and read the arguments' text. Raises ToolFailure UNKNOWN_TOOL or INVALID_ARGUMENTS."""
    tool = registry.find(name)
    if tool is None:
        known = ", ".join(name for name in registry.names if name not in AT_TIMES) or "none"
        raise ToolFailure("UNKNOWN_TOOL", "UnknownTool", f"there is no tool {name!r}; the tools are: {known}")
    return PreparedCall(tool, read_arguments(name, arguments, tool.params))


class Proposed(Struct, frozen=True):
    """A call that changes something: what a person is asked about, and how to run exactly that."""

    subject: ApprovalSubject
    run: Callable[[], Awaitable[ToolAnswer]]


async def propose(registry: ToolTable, name: str, arguments: str, context: ToolContext) -> Proposed | ToolAnswer | None:
    """Give what a call that changes something would do; None for one that only reads, or that `execute` will refuse.
    An answer is one that cannot be done. Raises nothing but cancellation."""
    tool = registry.find(name)
    if tool is None or tool.read_only:
        return None
    try:
        prepared = prepare(registry, name, arguments)
    except ToolFailure as failure:
        return failed(failure, context.output_limit)
    if not isinstance(tool, ProposingTool):
        subject = ApprovalSubject("text", f"{name} {arguments}")
        return Proposed(subject, lambda: run(prepared, context))
    made: list[Proposal] = []

    async def work_out() -> ToolOutput:
        made.append(await tool.propose(context, prepared.params))
        return ToolOutput(())

    refused = await _guarded(name, work_out, context)
    if not made:
        return refused
    return Proposed(made[0].subject, lambda: _guarded(name, made[0].apply, context))


async def execute(registry: ToolTable, name: str, arguments: str, context: ToolContext) -> ToolAnswer:
    """Run one call and give its answer. Raises nothing but cancellation.

    `arguments` is the text as the adapter repaired it (an empty one became `{}`).
    """
    try:
        prepared = prepare(registry, name, arguments)
    except ToolFailure as failure:
        return failed(failure, context.output_limit)
    return await run(prepared, context)


async def run(prepared: PreparedCall, context: ToolContext) -> ToolAnswer:
    """Run a prepared call within its time limit and give its answer. Raises nothing but cancellation."""
    return await _guarded(prepared.tool.schema.name, lambda: prepared.tool.run(context, prepared.params), context)


async def _guarded(name: str, work: Callable[[], Awaitable[ToolOutput]], context: ToolContext) -> ToolAnswer:
    task = asyncio.current_task()
    try:
        with anyio.move_on_after(context.time_limit_s) as scope:
            return _answer(await work(), context.output_limit)
        assert scope.cancelled_caught
        late = f"{name} did not end within {context.time_limit_s:g} s and was stopped; ask for less at a time"
        return failed(ToolFailure("TIMED_OUT", "TimedOut", late), context.output_limit)
    except ToolFailure as failure:
        return failed(failure, context.output_limit)
    except BaseException as error:  # a tool may be anybody's code; its fault is its result
        if not is_own_fault(error, task):
            raise
        return failed(ToolFailure("TOOL_FAILED", type(error).__name__, f"{name} failed: {_reason(error)}"))


def failed(failure: ToolFailure, limit: int = _MAX_REASON) -> ToolAnswer:
    """Give the answer that tells a failure to the model."""
    info = ToolErrorInfo(name=SECRETS.scrub(repair_surrogates(failure.name)), code=failure.code)
    return ToolAnswer(settle(text_content(SECRETS.scrub(failure.message)), limit), True, info)


def _answer(output: ToolOutput, limit: int) -> ToolAnswer:
    for block in output.content:
        if not isinstance(block, TextBlock | ImageBlock):  # pyright: ignore[reportUnnecessaryIsInstance] - others' code
            raise TypeError(f"a tool's content holds a {type(block).__name__}")
    return ToolAnswer(settle(output.content, limit), False, meta=_meta(output.meta))


def _meta(meta: JsonText | None) -> JsonText | None:
    """Keep what is strict JSON; anything else becomes a JSON string of its text: the log holds nothing else."""
    if meta is None:
        return None
    try:
        return check_json(meta)
    except InvalidJsonError:
        return compact_json(repair_surrogates(meta))


def _reason(error: BaseException) -> str:
    """Give the class and the first line of what an exception says: no traceback leaves the process."""
    line = first_line(error)[: _MAX_REASON // 2]
    return f"{type(error).__name__}: {line}" if line else type(error).__name__
