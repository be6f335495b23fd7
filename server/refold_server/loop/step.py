"""Owns one step: assemble, record, send, stream, record the reply, run its tools. The order is log.md section 7's.

Nothing is sent before the log holds it durably (`request/sent`, flush), nothing is shown that is not appended first.
"""

from __future__ import annotations

from contextlib import aclosing

from msgspec import Struct

from refold_protocol.dialects.registry import dialect_named
from refold_protocol.errors import ProviderError
from refold_protocol.json_text import is_json_object
from refold_protocol.session.chunks import assemble, with_call_ids, without_calls
from refold_protocol.session.events import (
    AssistantChunk,
    AssistantMessage,
    Draft,
    RequestSent,
    StepEnd,
    StepStart,
)
from refold_protocol.session.header import canonical_header, header_draft
from refold_protocol.session.header_types import EpochHeader
from refold_protocol.session.messages import Block, ToolCallBlock
from refold_protocol.session.rebuild import request_of
from refold_protocol.session.request import Request
from refold_server.loop.inbox import join_before_step, waiting
from refold_server.loop.instance import Instance
from refold_server.loop.seams import Assembled
from refold_server.loop.toolcalls import run_calls


class StepDone(Struct, frozen=True, gc=False):
    """A step that ended well. `capped`: the output limit cut it; `go_on`: the model waits for results, or steering for it."""

    capped: bool
    go_on: bool


async def run_step(instance: Instance, turn: int, step: int) -> StepDone:
    """Run step `turn`.`step` to its `step/end`. Raises ProviderError and LogError with the step still open."""
    ledger, seams = instance.ledger, instance.seams
    join_before_step(ledger, turn)
    offered = await seams.assemble(instance.system, instance.frozen_tools())
    if instance.prefix is None:
        instance.prefix = await seams.session_prefix()  # a cancelled composition never gets here
    await seams.pre_step(instance.prefix)
    ledger.append(Draft(StepStart(turn, step)))
    request = await _record_header(instance, offered)
    body = await _record_request(instance, request, turn, step)
    await _stream(instance, request, body, turn, step)
    message = _record_reply(instance, turn, step)
    if message.finish in _REFUSALS:
        raise ProviderError(*_REFUSALS[message.finish])
    calls = tuple(block for block in message.content if isinstance(block, ToolCallBlock))
    if calls:
        await run_calls(instance, turn, step, calls)
    ledger.append(Draft(StepEnd(turn, step)))
    go_on = bool(calls) or bool(waiting(ledger, ("steer",)))
    return StepDone(message.finish == "length", await seams.turn_stop(go_on))


_REFUSALS = {
    "content-filter": (
        "provider.filtered",
        "The provider's filter stopped this answer. Rephrase the prompt, or use another model.",
    ),
    "refusal": ("provider.refused", "The model refused to answer. Rephrase the prompt, or use another model."),
}


async def _record_header(instance: Instance, offered: Assembled) -> Request:
    ledger = instance.ledger
    config = await instance.seams.request(instance.config_seed())
    wanted = canonical_header(EpochHeader(config, offered.system, offered.tools, instance.prefix))
    draft = header_draft(ledger.folds.horizon.header, wanted, anchored=instance.anchored)
    if draft is not None:
        ledger.append(draft)
    instance.anchored = True
    return request_of(ledger.folds.horizon)


async def _record_request(instance: Instance, request: Request, turn: int, step: int) -> bytes:
    dialect = dialect_named(request.header.config.dialect)
    body = instance.encoder(request.header.config.dialect).encode(request, {})
    instance.ledger.append(
        Draft(
            RequestSent(
                "step",
                1,
                dialect.encoder,
                len(body.data),
                body.sha256,
                instance.digest.of(request),
                turn,
                step,
            )
        )
    )
    await instance.ledger.flush()  # fail closed: what is not durable is not sent
    return body.data


async def _stream(instance: Instance, request: Request, body: bytes, turn: int, step: int) -> None:
    append, handle = instance.ledger.append, instance.ledger.handle
    provider = instance.host.provider(request.header.config.provider)
    async with aclosing(instance.seams.stream(provider, request, body)) as chunks:
        async for chunk in chunks:
            if handle.trouble is not None:  # what streams on could not be kept: stop asking for it
                raise handle.trouble
            append(Draft(AssistantChunk(turn, step, 1, chunk)))


def _record_reply(instance: Instance, turn: int, step: int) -> AssistantMessage:
    ledger = instance.ledger
    stream = ledger.folds.work.stream
    reply = assemble(stream.chunks)
    if reply.finish is None:
        raise ProviderError("provider.badStream", "The provider's answer ended without saying that it is complete. Try again.")
    config = request_of(ledger.folds.horizon).header.config
    content = reply.content if _may_call(reply.finish, reply.content) else without_calls(reply.content)
    message = AssistantMessage(
        turn,
        step,
        with_call_ids(content, turn, step, ledger.is_used),
        config.provider,
        config.model,
        reply.finish,
        usage=reply.usage,
    )
    ledger.append(Draft(message, surface_op="append", sources=stream.ranges))
    return message


def _may_call(finish: str, content: tuple[Block, ...]) -> bool:
    """Calls of a capped or refused reply may be cut. After a reason that nobody knows, whole arguments speak for them."""
    if finish in ("stop", "tool-calls"):
        return True
    return finish == "other" and all(is_json_object(block.arguments) for block in content if isinstance(block, ToolCallBlock))
