"""Owns what the loop records for calls that have no answer when their turn is stopped: no closed turn leaves one open.

A call that ran may have had its effect, so its outcome is unknown; one that did not start says so, and is safe to repeat.
After a crash the closers do the same from the log alone (`session/closers.py`).

Owns the running of a reply's calls: which start together, what is recorded before and after, in which order.

Calls that only read run together, as many as MAX_PARALLEL; any other call runs alone. Each `tool/call` of a group is
durable before the first of the group starts; results are recorded in the order of the calls, as soon as that order allows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import anyio

from refold_protocol.ids import CallId
from refold_protocol.session.events import ContextMessage, Draft, ToolCall, ToolErrorInfo, ToolResult
from refold_protocol.session.grammar import OpenCall
from refold_protocol.session.messages import ToolCallBlock, text_content
from refold_server.loop.instance import Instance
from refold_server.plugins.hook_table import Call, HookContext
from refold_server.plugins.session_hooks import Executed
from refold_server.tools.tool_runner import ToolAnswer

_UNASKED = "This call did not run: the turn was stopped before anybody allowed it."
_UNSTARTED = "This call did not run: the turn was stopped first."
_UNKNOWN = "The turn was stopped while this tool ran. Check what it did before you try again."
_UNREAD = "The turn was stopped while this tool ran, so there is no answer. It changes nothing; ask again if you need it."


def unanswered(turn: int, step: int, call: OpenCall, *, read_only: bool) -> list[Draft]:
    """Give the drafts that answer a call of a stopped turn: its result, behind the `tool/call` where there is none yet."""
    if call.started is None:
        return [
            Draft(ToolCall(turn, step, call.id, call.name, call.arguments)),
            _aborted_result(turn, step, call, _UNSTARTED, "ABORTED_BEFORE_DISPATCH"),
        ]
    if call.approval not in (None, "allowed"):
        return [_aborted_result(turn, step, call, _UNASKED, "ABORTED_BEFORE_DISPATCH")]
    return [_aborted_result(turn, step, call, _UNREAD if read_only else _UNKNOWN, "TOOL_OUTCOME_UNKNOWN")]


def _aborted_result(turn: int, step: int, call: OpenCall, text: str, code: str) -> Draft:
    result = ToolResult(turn, step, call.id, text_content(text), True, ToolErrorInfo("Aborted", code))
    return Draft(result, surface_op="append", sources=None if call.started is None else ((call.started, call.started),))


MAX_PARALLEL = 8
"""Most calls that run at the same time."""


async def run_calls(instance: Instance, place: HookContext, calls: tuple[ToolCallBlock, ...]) -> None:
    """Run all calls of a reply and record their results, then the context that seams added. Raises LogError."""
    context: list[ContextMessage] = []
    for group in _groups(instance, calls):
        started = instance.session_log.append(
            *(Draft(ToolCall(place.turn, place.step, CallId(call.id), call.name, call.arguments)) for call in group)
        )
        await instance.session_log.flush()  # fail closed: a tool whose call is not durable does not run
        seqs = [event.seq for event in started]
        context.extend(await _run_group(instance, place, group, seqs))
    if context:
        instance.session_log.append(*(Draft(message, surface_op="append") for message in context))


def _groups(instance: Instance, calls: tuple[ToolCallBlock, ...]) -> Iterator[tuple[ToolCallBlock, ...]]:
    together: list[ToolCallBlock] = []
    for call in calls:
        alone = not instance.host.is_read_only(call.name)
        if together and (alone or len(together) == MAX_PARALLEL):
            yield tuple(together)
            together = []
        together.append(call)
        if alone:
            yield tuple(together)
            together = []
    if together:
        yield tuple(together)


async def _run_group(
    instance: Instance, place: HookContext, group: tuple[ToolCallBlock, ...], seqs: list[int]
) -> list[ContextMessage]:
    done: dict[int, Executed] = {}
    context: list[ContextMessage] = []
    recorded = 0

    async def run(number: int, call: ToolCallBlock) -> None:
        nonlocal recorded
        done[number] = await _run_one(instance, place, call)
        while recorded in done:
            executed = done[recorded]
            instance.session_log.append(_result(place, group[recorded].id, seqs[recorded], executed.answer))
            context.extend(executed.context)
            recorded += 1

    try:
        async with anyio.create_task_group() as tasks:
            for number, call in enumerate(group):
                tasks.start_soon(run, number, call)
    except ExceptionGroup as failures:  # one failure says it all: the others were cancelled by it
        raise failures.exceptions[0] from None
    finally:
        if recorded < len(group):  # the turn was stopped: what is known is kept, in the order of the calls
            _record_known(instance, place, group, recorded, done)
    return context


def _record_known(
    instance: Instance, place: HookContext, group: tuple[ToolCallBlock, ...], recorded: int, done: Mapping[int, Executed]
) -> None:
    """Record the answers that are there behind a call which has none, and that it has none."""
    drafts: list[Draft] = []
    waiting = {call.id: call for call in instance.session_log.folds.work.calls}
    for number in range(recorded, max(done, default=-1) + 1):
        call = waiting[CallId(group[number].id)]
        assert call.started is not None  # every call of a group is recorded before the first of it runs
        if number in done:
            drafts.append(_result(place, call.id, call.started, done[number].answer))
        else:
            read_only = instance.host.is_read_only(call.name)
            drafts.extend(unanswered(place.turn, place.step, call, read_only=read_only))
    instance.session_log.append(*drafts, closing=True)


async def _run_one(instance: Instance, place: HookContext, block: ToolCallBlock) -> Executed:
    hooks, host = instance.hooks, instance.host
    call = Call(place, CallId(block.id), block.name, block.arguments, host.is_read_only(block.name))
    denied = await hooks.pre_execute(call)
    answer = await _answer(instance, call) if denied is None else _denied(denied)
    return await hooks.post_execute(call, answer)


async def _answer(instance: Instance, call: Call) -> ToolAnswer:
    """Run a call that a person may have to allow first: exactly what they were shown, or nothing."""
    host, hooks = instance.host, instance.hooks
    proposed = await host.propose(call.id, call.name, call.arguments)
    if isinstance(proposed, ToolAnswer):
        return proposed
    instance.session_log.refuse_stalled()
    if proposed is None:
        return await hooks.execute(call, lambda: host.run_tool(call.id, call.name, call.arguments))
    mode = host.permission_mode(instance.session_log.folds.settings)
    verdict = await instance.approvals.verdict(call, proposed.subject, mode, host.approval_limit_s())
    return await hooks.execute(call, proposed.run) if verdict.allowed else _denied(verdict.reason)


def _denied(reason: str) -> ToolAnswer:
    return ToolAnswer(text_content(reason), True, ToolErrorInfo("Denied", "DENIED"))


def _result(place: HookContext, call: str, seq: int, answer: ToolAnswer) -> Draft:
    result = ToolResult(place.turn, place.step, CallId(call), answer.content, answer.is_error, answer.error, answer.meta)
    return Draft(result, surface_op="append", sources=((seq, seq),))
