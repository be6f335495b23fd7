"""The calls of a reply: which run together, what is recorded before and after each, and what stands for one without answer.

Calls that only read run together, as many as MAX_PARALLEL; any other call runs alone. Each `tool/call` of a group is
durable before the first of the group starts; results are recorded in the order of the calls, as soon as that order allows.
No stopped turn leaves a call open: one that ran may have had its effect, so its outcome is unknown; one that did not start is
safe to repeat. After a crash the closers say the same from the log alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

import anyio

from refold_protocol.ids import CallId
from refold_protocol.session.events import ContextMessage, Draft, SessionSettings, ToolCall, ToolErrorInfo, ToolResult
from refold_protocol.session.grammar import OpenCall
from refold_protocol.session.messages import ToolCallBlock, ToolSchema, text_content
from refold_server.config import Mode
from refold_server.loop.approvals import Approvals
from refold_server.plugins.hook_table import Call, HookContext
from refold_server.plugins.session_hooks import Executed, SessionHooks
from refold_server.requests.session_log import SessionLog
from refold_server.tools.tool_runner import Proposed, ToolAnswer

MAX_PARALLEL = 8
"""Most calls that run at the same time."""

_UNASKED = "This call did not run: the turn was stopped before anybody allowed it."
_UNSTARTED = "This call did not run: the turn was stopped first."
_UNKNOWN = "The turn was stopped while this tool ran. Check what it did before you try again."
_UNREAD = "The turn was stopped while this tool ran, so there is no answer. It changes nothing; ask again if you need it."


class ToolHost(Protocol):
    """The tools of a session's workspace, and the settings for their calls."""

    async def tools(self) -> tuple[ToolSchema, ...]:
        """Give the tools that are there now, in their order."""
        ...

    def is_read_only(self, tool: str) -> bool:
        """Tell whether calls of that tool may run beside others; an unknown tool's may, since it only answers an error."""
        ...

    def permission_mode(self, settings: SessionSettings) -> Mode:
        """Tell whether calls that change something run, do not run, or are asked about."""
        ...

    def approval_limit_s(self) -> float:
        """Give how long a question waits for its answer, in seconds."""
        ...

    async def propose(self, call_id: CallId, name: str, arguments: str) -> Proposed | ToolAnswer | None:
        """Work out what a call that changes something would do; None for one that may just run, an answer for one that
        cannot be done. Never raises but for cancellation."""
        ...

    async def run_tool(self, call_id: CallId, name: str, arguments: str) -> ToolAnswer:
        """Run a call in the session's workspace; never raises but for cancellation."""
        ...


class ToolCalls:
    """The calls of one session."""

    def __init__(self, session_log: SessionLog, host: ToolHost, hooks: SessionHooks, approvals: Approvals) -> None:
        self._log = session_log
        self._host = host
        self._hooks = hooks
        self._approvals = approvals
        self._begun: set[CallId] = set()

    async def offered(self) -> tuple[ToolSchema, ...]:
        """Give the tools that are there now. What an earlier request offered besides is added where a list is decided: else
        whoever adds a tool at each step would find it here already."""
        return await self._host.tools()

    async def run(self, place: HookContext, calls: tuple[ToolCallBlock, ...]) -> None:
        """Run all calls of a reply and record their results, then the context that hooks added. Raises LogError."""
        context: list[ContextMessage] = []
        for group in self._groups(calls):
            started = self._log.append(
                *(Draft(ToolCall(place.turn, place.step, CallId(call.id), call.name, call.arguments)) for call in group)
            )
            await self._log.flush()  # fail closed: a tool whose call is not durable does not run
            context.extend(await self._run_group(place, group, [event.seq for event in started]))
        self._log.append(*(Draft(message, surface_op="append") for message in context))

    def unanswered(self, turn: int, step: int, call: OpenCall) -> list[Draft]:
        """Give the drafts that answer a call of a stopped turn: its result, after the `tool/call` where there is none yet."""
        if call.started is None:
            return [
                Draft(ToolCall(turn, step, call.id, call.name, call.arguments)),
                _aborted_result(turn, step, call, _UNSTARTED, "ABORTED_BEFORE_DISPATCH"),
            ]
        if call.id not in self._begun:  # it was worked out, or somebody was asked, and nothing ran yet
            text = _UNSTARTED if call.approval in (None, "allowed") else _UNASKED
            return [_aborted_result(turn, step, call, text, "ABORTED_BEFORE_DISPATCH")]
        text = _UNREAD if self._host.is_read_only(call.name) else _UNKNOWN
        return [_aborted_result(turn, step, call, text, "TOOL_OUTCOME_UNKNOWN")]

    def _groups(self, calls: tuple[ToolCallBlock, ...]) -> Iterator[tuple[ToolCallBlock, ...]]:
        together: list[ToolCallBlock] = []
        for call in calls:
            alone = not self._host.is_read_only(call.name)
            if together and (alone or len(together) == MAX_PARALLEL):
                yield tuple(together)
                together = []
            together.append(call)
            if alone:
                yield tuple(together)
                together = []
        if together:
            yield tuple(together)

    async def _run_group(self, place: HookContext, group: tuple[ToolCallBlock, ...], seqs: list[int]) -> list[ContextMessage]:
        done: dict[int, Executed] = {}
        context: list[ContextMessage] = []
        recorded = 0

        async def run(number: int, call: ToolCallBlock) -> None:
            nonlocal recorded
            done[number] = await self._run_one(place, call)
            while recorded in done:
                executed = done[recorded]
                self._log.append(_result(place, group[recorded].id, seqs[recorded], executed.answer))
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
                self._record_known(place, group, recorded, done)
        return context

    def _record_known(
        self, place: HookContext, group: tuple[ToolCallBlock, ...], recorded: int, done: Mapping[int, Executed]
    ) -> None:
        """Record the answers that are there after a call which has none, and that it has none."""
        drafts: list[Draft] = []
        waiting = {call.id: call for call in self._log.folds.work.calls}
        for number in range(recorded, max(done, default=-1) + 1):
            call = waiting[CallId(group[number].id)]
            assert call.started is not None  # every call of a group is recorded before the first of it runs
            if number in done:
                drafts.append(_result(place, call.id, call.started, done[number].answer))
            else:
                drafts.extend(self.unanswered(place.turn, place.step, call))
        self._log.append(*drafts, closing=True)

    async def _run_one(self, place: HookContext, block: ToolCallBlock) -> Executed:
        call = Call(place, CallId(block.id), block.name, block.arguments, self._host.is_read_only(block.name))
        denied = await self._hooks.pre_execute(call)
        answer = await self._answer(call) if denied is None else _denied(denied)
        return await self._hooks.post_execute(call, answer)

    async def _answer(self, call: Call) -> ToolAnswer:
        """Run a call that a person may have to allow first: exactly what they were shown, or nothing."""
        host, hooks = self._host, self._hooks
        proposed = await host.propose(call.id, call.name, call.arguments)
        if isinstance(proposed, ToolAnswer):
            return proposed
        self._log.refuse_stalled()
        if proposed is None:
            self._begun.add(call.id)
            return await hooks.execute(call, lambda: host.run_tool(call.id, call.name, call.arguments))
        mode = host.permission_mode(self._log.folds.settings)
        verdict = await self._approvals.verdict(call, proposed.subject, mode, host.approval_limit_s())
        if not verdict.allowed:
            return _denied(verdict.reason)
        self._begun.add(call.id)
        return await hooks.execute(call, proposed.run)


def _aborted_result(turn: int, step: int, call: OpenCall, text: str, code: str) -> Draft:
    result = ToolResult(turn, step, call.id, text_content(text), True, ToolErrorInfo("Aborted", code))
    return Draft(result, surface_op="append", sources=None if call.started is None else ((call.started, call.started),))


def _denied(reason: str) -> ToolAnswer:
    return ToolAnswer(text_content(reason), True, ToolErrorInfo("Denied", "DENIED"))


def _result(place: HookContext, call: str, seq: int, answer: ToolAnswer) -> Draft:
    result = ToolResult(place.turn, place.step, CallId(call), answer.content, answer.is_error, answer.error, answer.meta)
    return Draft(result, surface_op="append", sources=((seq, seq),))
