"""The run of one compaction, from `compact/start` to `compact/end`: its calls, the judging of its summary, and the batch that
puts it in place.

Until that batch the surface is what it was; a failure or a cancellation closes with `compact/end {error}` and leaves it so.
When to compact, and what, is decided elsewhere.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import aclosing

from msgspec import Struct
from msgspec.structs import replace

from refold_protocol.errors import InvariantError, LogError, ProviderError, RefoldError
from refold_protocol.session.chunks import assemble
from refold_protocol.session.events import (
    CompactEnd,
    CompactStart,
    CompactSummary,
    Draft,
    Replace,
    TurnError,
    UnusedSummary,
    UserMessage,
)
from refold_protocol.session.messages import CallConfig, Chunk, Message, TextBlock, ToolCallBlock, UsageChunk, text_content
from refold_protocol.session.request import OpenCompaction, region_nodes, summary_request_of
from refold_protocol.session.surface import Surface
from refold_protocol.session.token_estimate import estimate_message
from refold_server.compaction.compaction_decision import (
    COMPACTION,
    CompactionError,
    Plan,
    PlanInput,
    WindowUsage,
    is_passing,
    planned,
    ranges_of,
    replacement,
)
from refold_server.compaction.summary_substance import check_substance, last_prompt
from refold_server.plugins.hook_table import HookContext, Summarising, Summary
from refold_server.plugins.session_hooks import SessionHooks
from refold_server.requests.model_call import ask_model, while_durable
from refold_server.requests.session_log import SessionLog
from refold_server.requests.session_model import SessionModel

_log = logging.getLogger(__name__)


class CompactionJob(Struct, frozen=True):
    """What a compaction is to do. `trigger` is `pressure`, `overflow` or `user`; `config` has no output limit yet; from `given`
    and `retain` it is planned again after the provider said that a call did not fit."""

    trigger: str
    instructions: str
    config: CallConfig
    usage: WindowUsage
    given: PlanInput
    retain: int


class SummaryBudget:
    """How many summaries may still be asked for."""

    def __init__(self, left: int) -> None:
        self.left = left


class CompactionOutcome(Struct, frozen=True, gc=False):
    """A compaction that took place: the seq of the message that stands for the region, what both cost in tokens."""

    seq: int
    tokens: int
    shadowed: int


async def compact(
    session_log: SessionLog,
    model: SessionModel,
    hooks: SessionHooks,
    place: HookContext,
    job: CompactionJob,
    plan: Plan,
    budget: SummaryBudget,
) -> CompactionOutcome:
    """Sum up a region and put the summary in its place. Asks again where that may help, for a smaller region where the call
    did not fit: that is a compaction of its own. Raises CompactionError and ProviderError with the history unchanged, and
    LogError."""
    attempt, paid = 0, list[UnusedSummary]()
    while True:
        if attempt == 0:
            paid.clear()
            _start(session_log, job, plan)
        budget.left, attempt = budget.left - 1, attempt + 1
        try:
            summary = await _summary(session_log, model, hooks, place, plan, attempt, paid)
            return _land(session_log, job, plan, summary, paid)
        except RefoldError as error:
            following = _following(job, plan, error, budget)
            if following != plan:
                _fail(session_log, error, paid)
                attempt = 0
            if following is None:
                raise
            plan = following
        except BaseException:
            _fail(session_log, CompactionError("The compaction was stopped; nothing was changed."), paid)
            raise


def _start(session_log: SessionLog, job: CompactionJob, plan: Plan) -> None:
    config, turn = replace(job.config, max_tokens=plan.cap), session_log.folds.work.turn
    start = CompactStart(job.trigger, (plan.region.first, plan.region.last), job.instructions, config, turn)
    session_log.append(Draft(start))


def _following(job: CompactionJob, plan: Plan, error: RefoldError, budget: SummaryBudget) -> Plan | None:
    """Give what to try after a failure: the same, less, or nothing."""
    if budget.left <= 0 or not is_passing(error):
        return None
    if error.error_kind == "provider.contextOverflow":
        return planned(job.given, job.retain, plan.region.tokens // 2)
    return plan


def _fail(session_log: SessionLog, error: RefoldError, paid: list[UnusedSummary]) -> None:
    if session_log.folds.work.compaction is None:
        return
    status = error.status if isinstance(error, ProviderError) else None
    end = CompactEnd(TurnError(error.error_kind, error.message, status=status), tuple(paid))
    try:
        session_log.append(Draft(end), closing=True)
    except LogError as trouble:  # whoever opens the log next closes it
        _log.error("the end of a compaction could not be recorded: %s", trouble.message)


async def _summary(
    session_log: SessionLog,
    model: SessionModel,
    hooks: SessionHooks,
    place: HookContext,
    plan: Plan,
    attempt: int,
    paid: list[UnusedSummary],
) -> Summary:
    """Ask for a summary, and note in `paid` what was reported of its cost, whatever comes of it."""
    asked = session_log.folds.request_state.compaction
    if asked is None:
        raise InvariantError("a compaction began and is not open")
    request = summary_request_of(session_log.folds.request_state)
    config = request.header.config

    async def own() -> Summary:
        chunks: list[Chunk] = []
        try:
            with while_durable(session_log):
                async with aclosing(ask_model(session_log, model, hooks, place, request, "summary", attempt)) as reply:
                    async for chunk in reply:
                        chunks.append(chunk)
        finally:
            reported = [chunk.usage for chunk in chunks if isinstance(chunk, UsageChunk)]
            paid.extend(UnusedSummary(attempt, usage) for usage in reported[-1:])
        return summary_of(chunks, f"{config.provider}/{config.model}")

    recorded = None if asked.header is None else asked.header.message_prefix
    prefix = (recorded if model.prefix is None else model.prefix) or ()  # of now on; before it was composed, the recorded one
    return await hooks.summarise(Summarising(place, request, asked.start.instructions, plan.cap, prefix), own)


def _land(
    session_log: SessionLog, job: CompactionJob, plan: Plan, summary: Summary, paid: list[UnusedSummary]
) -> CompactionOutcome:
    region, asked = plan.region, session_log.folds.request_state.compaction
    if asked is None or not _is_untouched(session_log.folds.request_state.surface, asked):
        raise CompactionError("The history changed while it was summed up; nothing was replaced.")
    content = text_content(replacement(summary.text))
    price = estimate_message(Message("user", content), job.usage.profile.density)
    check_shrinks(price, region.tokens)
    check_substance(summary.text, job.instructions, last_prompt(region_nodes(asked)))
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
        Draft(CompactEnd(unused=tuple(one for one in paid if one.usage is not summary.usage))),
    )
    return CompactionOutcome(message.seq, price, region.tokens)


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


def _is_untouched(surface: Surface, asked: OpenCompaction) -> bool:
    """Tell whether the nodes of a region stand where they stood when its compaction began."""
    before = region_nodes(asked)
    now = surface.nodes[: len(before)]
    return [node.seq for node in before] == [node.seq for node in now]
