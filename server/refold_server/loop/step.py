"""Owns one step: assemble, record, send, stream, record the reply, run its tools. The order is log.md section 7's.

Nothing is sent before the log holds it durably (`request/sent`, flush), nothing is shown that is not appended first.
"""

from __future__ import annotations

from contextlib import aclosing

from msgspec import Struct

from refold_protocol.dialects.dialect_table import dialect_named
from refold_protocol.errors import ProviderError
from refold_protocol.json_text import is_json_object
from refold_protocol.session.chunks import assemble, with_call_ids, without_calls
from refold_protocol.session.events import AssistantChunk, AssistantMessage, Draft, RequestSent, StepEnd, StepStart
from refold_protocol.session.header import canonical_header, header_draft
from refold_protocol.session.messages import Block, EpochHeader, Message, ToolCallBlock
from refold_protocol.session.request import Request, request_of
from refold_server.loop.compaction_trigger import CompactionTrigger
from refold_server.loop.instance import Instance
from refold_server.loop.model_call import replying, while_durable
from refold_server.loop.retries import with_retries
from refold_server.loop.tool_calls import run_calls
from refold_server.plugins.hook_table import Assembled, HookContext, Outgoing, Stop
from refold_server.requests.session_log import join_before_step, waiting


class StepDone(Struct, frozen=True, gc=False):
    """A step that ended well. `capped`: the output limit cut it; `go_on`: the model waits for results, or steering for it;
    `stopped`: how a hook ended the turn here."""

    capped: bool
    go_on: bool
    stopped: Stop | None = None


async def run_step(instance: Instance, trigger: CompactionTrigger, turn: int, step: int) -> StepDone:
    """Run step `turn`.`step` to its `step/end`. Raises ProviderError and LogError with the step still open."""
    session_log, hooks = instance.session_log, instance.hooks
    place = hooks.place(turn, step)
    hooks.tell_failed_observers()
    join_before_step(session_log, turn)
    offered = await hooks.assemble(place, instance.system, await instance.offered_tools())
    prefix = await _prefix(instance, place)
    context = await hooks.pre_step(place, offered, prefix)
    join_before_step(session_log, turn)  # what arrived meanwhile belongs to this request as well
    session_log.append(*(Draft(message, surface_op="append") for message in context))
    await trigger.compact_if_needed(place, offered, prefix)
    join_before_step(session_log, turn)
    session_log.append(Draft(StepStart(turn, step)))
    request = await _record_header(instance, place, offered)

    async def attempt(number: int) -> None:
        body = await _record_request(instance, request, turn, step, number)
        await _stream(instance, Outgoing(place, request, body), turn, step, number)

    await with_retries(instance.host.retries(), session_log, turn, step, attempt)
    message = _record_reply(instance, turn, step)
    if message.finish in _REFUSALS:
        raise ProviderError(*_REFUSALS[message.finish])
    calls = tuple(block for block in message.content if isinstance(block, ToolCallBlock))
    if calls:
        await run_calls(instance, place, calls)
    session_log.append(Draft(StepEnd(turn, step)))
    return await _ended(instance, place, capped=message.finish == "length", called=bool(calls))


async def _prefix(instance: Instance, place: HookContext) -> tuple[Message, ...]:
    if instance.composition is None:
        instance.composition = await instance.hooks.session_prefix(place)  # a cancelled one does not get here, see `attempt`
    return instance.composition.messages


async def _ended(instance: Instance, place: HookContext, *, capped: bool, called: bool) -> StepDone:
    steered = bool(waiting(instance.session_log, ("steer",)))
    verdict = await instance.hooks.turn_stop(place, called or steered)
    instance.session_log.append(*(Draft(message, surface_op="append") for message in verdict.context))
    return StepDone(capped, verdict.goes_on, verdict.stopped)


_REFUSALS = {
    "content-filter": (
        "provider.filtered",
        "The provider's filter stopped this answer. Rephrase the prompt, or use another model.",
    ),
    "refusal": ("provider.refused", "The model refused to answer. Rephrase the prompt, or use another model."),
}


async def _record_header(instance: Instance, place: HookContext, offered: Assembled) -> Request:
    session_log = instance.session_log
    config = await instance.hooks.request(place, instance.config_seed(), instance.check_config)
    tools = instance.frozen_tools(offered.tools, config)
    wanted = canonical_header(EpochHeader(config, offered.system, tools, instance.prefix))
    draft = header_draft(session_log.folds.request_state.header, wanted, anchored=instance.anchored)
    if draft is not None:
        session_log.append(draft)
    instance.anchored = True
    return request_of(session_log.folds.request_state)


async def _record_request(instance: Instance, request: Request, turn: int, step: int, attempt: int) -> bytes:
    dialect = dialect_named(request.header.config.dialect)
    body = instance.encoder(request.header.config.dialect).encode(request, {})
    instance.session_log.append(
        Draft(
            RequestSent(
                "step",
                attempt,
                dialect.encoder,
                len(body.data),
                body.sha256,
                instance.digest.of(request),
                turn,
                step,
            )
        )
    )
    await instance.session_log.flush()  # fail closed: what is not durable is not sent
    return body.data


async def _stream(instance: Instance, outgoing: Outgoing, turn: int, step: int, attempt: int) -> None:
    """Record the reply as it comes. Raises LogError as soon as a commit fails."""
    session_log = instance.session_log
    with while_durable(session_log):
        async with aclosing(replying(instance, outgoing)) as chunks:
            async for chunk in chunks:
                session_log.append(Draft(AssistantChunk(turn, step, attempt, chunk)))


def _record_reply(instance: Instance, turn: int, step: int) -> AssistantMessage:
    session_log = instance.session_log
    stream = session_log.folds.work.stream
    reply = assemble(stream.chunks)
    if reply.finish is None:
        raise ProviderError("provider.badStream", "The provider's answer ended without saying that it is complete. Try again.")
    config = request_of(session_log.folds.request_state).header.config
    content = reply.content if _may_call(reply.finish, reply.content) else without_calls(reply.content)
    message = AssistantMessage(
        turn,
        step,
        with_call_ids(content, turn, step, session_log.is_used),
        config.provider,
        config.model,
        reply.finish,
        usage=reply.usage,
    )
    session_log.append(Draft(message, surface_op="append", sources=stream.ranges))
    return message


def _may_call(finish: str, content: tuple[Block, ...]) -> bool:
    """Calls of a capped or refused reply may be cut. After a reason that nobody knows, whole arguments speak for them."""
    if finish in ("stop", "tool-calls"):
        return True
    return finish == "other" and all(is_json_object(block.arguments) for block in content if isinstance(block, ToolCallBlock))
