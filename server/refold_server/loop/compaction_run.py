"""Owns the judging of a summary: what a model answered, and whether it may stand for a region.

Owns one compaction, from `compact/start` to `compact/end`: its calls, and the landing of its summary in one batch.

Until the landing the surface is what it was; a failure or a cancellation closes with `compact/end {error}` and leaves it so.
When to compact, and what, is `room.py`'s matter.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import aclosing
from hashlib import sha256
from typing import TypeAlias

from msgspec import Struct

from refold_protocol.dialects.dialect_table import dialect_named
from refold_protocol.errors import InvariantError, LogError, ProviderError, RefoldError
from refold_protocol.session.chunks import assemble
from refold_protocol.session.events import (
    CompactEnd,
    CompactStart,
    CompactSummary,
    Draft,
    Replace,
    RequestSent,
    TurnError,
    UserMessage,
)
from refold_protocol.session.messages import CallConfig, Chunk, Message, TextBlock, ToolCallBlock, text_content
from refold_protocol.session.request import OpenCompaction, Request, region_nodes, request_sha256, summary_request_of
from refold_protocol.session.surface import Surface
from refold_server.compaction.compaction_plan import COMPACTION, CompactionError, Plan, is_passing, ranges_of, replacement
from refold_server.loop.instance import Instance
from refold_server.loop.model_call import replying, while_durable
from refold_server.plugins.hook_table import HookContext, Outgoing, Summarising, Summary


def summary_of(chunks: Iterable[Chunk], model: str) -> Summary:
    """Give the summary that a reply is. Raises CompactionError for a reply that is none: cut off by the output limit, a
    call of a tool, refused, blank; ProviderError where it has no end."""
    reply = assemble(chunks)
    if reply.finish is None:
        raise ProviderError("provider.badStream", "The provider's answer ended without saying that it is complete. Try again.")
    if any(isinstance(block, ToolCallBlock) for block in reply.content) or reply.finish == "tool-calls":
        raise CompactionError("The model called a tool instead of writing a summary.", again=True)
    if reply.finish == "length":
        raise CompactionError("The summary was cut off by the output limit; raise compaction.summary_max_tokens.", again=True)
    if reply.finish in ("content-filter", "refusal"):
        raise CompactionError("The model or its provider refused to write a summary.", again=True)
    text = "\n".join(block.text for block in reply.content if isinstance(block, TextBlock)).strip()
    if not text:
        raise CompactionError("The model wrote no summary: its answer is blank.", again=True)
    return Summary(text, model, reply.usage)


def check_shrinks(price: int, region: int) -> None:
    """Raise CompactionError for a summary that costs `price` tokens where its region costs no more than that."""
    if price >= region:
        message = f"The summary would not make the history shorter: it costs {price} tokens, what it stands for {region}."
        raise CompactionError(message, again=True)


_log = logging.getLogger(__name__)

Price: TypeAlias = Callable[[Message], int]
"""Gives the tokens of a message, as the session's meter counts them."""


class CompactionJob(Struct, frozen=True):
    """What a compaction is to do. `trigger` is `pressure`, `overflow` or `user`; `config` has no output limit yet; `smaller`
    plans again for a region that costs at most so many tokens, after the provider said that a call did not fit."""

    trigger: str
    instructions: str
    config: Callable[[int], CallConfig]
    price: Price
    smaller: Callable[[int], Plan | None]
    attempts: int


class CompactionOutcome(Struct, frozen=True, gc=False):
    """A compaction that took place: the seq of the message that stands for the region, what both cost in tokens."""

    seq: int
    tokens: int
    shadowed: int


async def compact(instance: Instance, place: HookContext, job: CompactionJob, plan: Plan) -> CompactionOutcome:
    """Sum up a region and put the summary in its place. Asks again where that may help, for a smaller region where the call
    did not fit: that is a compaction of its own. Raises CompactionError and ProviderError with the history unchanged, and
    LogError."""
    tries = attempt = 0
    while True:
        if attempt == 0:
            _start(instance, job, plan)
        tries, attempt = tries + 1, attempt + 1
        try:
            return _land(instance, job, plan, await _summary(instance, place, plan, attempt))
        except RefoldError as error:
            following = _following(job, plan, error, tries)
            if following != plan:
                _fail(instance, error)
                attempt = 0
            if following is None:
                raise
            plan = following
        except BaseException:
            _fail(instance, CompactionError("The compaction was stopped; nothing was changed."))
            raise


def _start(instance: Instance, job: CompactionJob, plan: Plan) -> None:
    region, turn = plan.region, instance.session_log.folds.work.turn
    config = job.config(plan.cap)
    start = CompactStart(job.trigger, (region.first, region.last), job.instructions, config, turn)
    instance.session_log.append(Draft(start))


def _following(job: CompactionJob, plan: Plan, error: RefoldError, tries: int) -> Plan | None:
    """Give what to try after a failure: the same, less, or nothing."""
    if tries >= job.attempts or not is_passing(error):
        return None
    if error.error_kind == "provider.contextOverflow":
        return job.smaller(plan.region.tokens // 2)
    return plan


def _fail(instance: Instance, error: RefoldError) -> None:
    if instance.session_log.folds.work.compaction is None:
        return
    status = error.status if isinstance(error, ProviderError) else None
    end = CompactEnd(TurnError(error.error_kind, error.message, status=status))
    try:
        instance.session_log.append(Draft(end), closing=True)
    except LogError as trouble:  # whoever opens the log next closes it
        _log.error("the end of a compaction could not be recorded: %s", trouble.message)


async def _summary(instance: Instance, place: HookContext, plan: Plan, attempt: int) -> Summary:
    asked = instance.session_log.folds.request_state.compaction
    if asked is None:
        raise InvariantError("a compaction began and is not open")
    request = summary_request_of(instance.session_log.folds.request_state)

    async def own() -> Summary:
        return await _ask(instance, place, request, attempt)

    summarising = Summarising(place, request, asked.start.instructions, plan.cap, _live_prefix(instance))
    return await instance.hooks.summarise(summarising, own)


def _live_prefix(instance: Instance) -> tuple[Message, ...]:
    """Give the prefix of this instance; before it was composed, the recorded one."""
    header = instance.session_log.folds.request_state.header
    recorded = None if header is None else header.message_prefix
    return (recorded if instance.prefix is None else instance.prefix) or ()


async def _ask(instance: Instance, place: HookContext, request: Request, attempt: int) -> Summary:
    config, session_log = request.header.config, instance.session_log
    dialect = dialect_named(config.dialect)
    body = dialect.encode(request, {})
    digest, turn = sha256(body).hexdigest(), session_log.folds.work.turn
    sent = RequestSent("summary", attempt, dialect.encoder, len(body), digest, request_sha256(request), turn)
    session_log.append(Draft(sent))
    await session_log.flush()  # fail closed: what is not durable is not sent
    chunks: list[Chunk] = []
    with while_durable(session_log):
        async with aclosing(replying(instance, Outgoing(place, request, body))) as reply:
            async for chunk in reply:
                chunks.append(chunk)
    return summary_of(chunks, f"{config.provider}/{config.model}")


def _land(instance: Instance, job: CompactionJob, plan: Plan, summary: Summary) -> CompactionOutcome:
    session_log, region = instance.session_log, plan.region
    asked = session_log.folds.request_state.compaction
    if asked is None or not _is_untouched(session_log.folds.request_state.surface, asked):
        raise CompactionError("The history changed while it was summed up; nothing was replaced.")
    content = text_content(replacement(summary.text))
    price = job.price(Message("user", content))
    check_shrinks(price, region.tokens)
    seqs = [node.seq for node in region_nodes(asked)]
    ranges = ranges_of(seqs)
    said = session_log.handle.tail + 1
    _, message, _ = session_log.append(
        Draft(CompactSummary(summary.text, ranges, region.tokens, summary.model, plan.cap, summary.usage)),
        Draft(
            UserMessage(content, COMPACTION),
            Replace(region.first, region.last),
            ranges_of((*seqs, asked.seq, said)),
        ),
        Draft(CompactEnd()),
    )
    return CompactionOutcome(message.seq, price, region.tokens)


def _is_untouched(surface: Surface, asked: OpenCompaction) -> bool:
    """Tell whether the nodes of a region stand where they stood when its compaction began."""
    before = region_nodes(asked)
    now = surface.nodes[: len(before)]
    return [node.seq for node in before] == [node.seq for node in now]
