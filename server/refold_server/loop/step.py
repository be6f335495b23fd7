"""One step: assemble, record, send, stream, record the reply, run its tools.

Nothing is sent before the log holds it durably (`request/sent`, flush), nothing is shown that is not appended first.
"""

from __future__ import annotations

from contextlib import aclosing
from typing import Final

from msgspec import Struct

from refold_protocol.dialects.dialect_table import dialect_named
from refold_protocol.errors import ProviderError
from refold_protocol.json_text import is_json_object
from refold_protocol.session.chunks import Reply, assemble, with_call_ids, without_calls
from refold_protocol.session.events import AssistantChunk, AssistantMessage, ContextMessage, Draft, StepEnd, StepStart
from refold_protocol.session.header import canonical_header, header_draft
from refold_protocol.session.messages import Block, EpochHeader, Message, Source, ToolCallBlock, text_content
from refold_protocol.session.request import Request, request_of
from refold_protocol.session.text_calls import calls_in
from refold_server.compaction.compaction_trigger import CompactionTrigger
from refold_server.loop.retries import with_retries
from refold_server.loop.tool_calls import ToolCalls
from refold_server.plugins.hook_table import Assembled, HookContext, Stop
from refold_server.plugins.session_hooks import SessionHooks
from refold_server.requests.model_call import ask_model, while_durable
from refold_server.requests.session_log import SessionLog, join_before_step, waiting
from refold_server.requests.session_model import SessionModel

CUT_OFF: Final = Source("loop", "cut off")
"""The source of the note that names the calls in which a reply was cut off."""

_SHOWN_ARGUMENTS: Final = 200
"""So many characters of a call's arguments stand in that note."""


class StepDone(Struct, frozen=True, gc=False):
    """A step that ended well. `capped`: the output limit cut it; `go_on`: the model waits for results, or steering for it;
    `stopped`: how a hook ended the turn here."""

    capped: bool
    go_on: bool
    stopped: Stop | None = None


async def run_step(
    session_log: SessionLog,
    model: SessionModel,
    tools: ToolCalls,
    hooks: SessionHooks,
    trigger: CompactionTrigger,
    turn: int,
    step: int,
) -> StepDone:
    """Run step `turn`.`step` to its `step/end`. Raises ProviderError and LogError with the step still open."""
    place = hooks.place(turn, step)
    hooks.tell_failed_observers()
    join_before_step(session_log, turn)
    offered = await hooks.assemble(place, model.system, await tools.offered())
    prefix = await _prefix(model, hooks, place)
    context = await hooks.pre_step(place, offered, prefix)
    join_before_step(session_log, turn)  # what arrived meanwhile belongs to this request as well
    session_log.append(*(Draft(message, surface_op="append") for message in context))
    await trigger.compact_if_needed(place, offered, prefix)
    join_before_step(session_log, turn)
    session_log.append(Draft(StepStart(turn, step)))
    request = await _record_header(session_log, model, hooks, place, offered)

    async def attempt(number: int) -> None:
        with while_durable(session_log):
            async with aclosing(ask_model(session_log, model, hooks, place, request, "step", number)) as chunks:
                async for chunk in chunks:
                    session_log.append(Draft(AssistantChunk(turn, step, number, chunk)))

    async with model.learning_window():
        await with_retries(model.models.retries(), session_log, turn, step, attempt)
    cut_off, message = _record_reply(session_log, turn, step)
    if message.finish in _REFUSALS:
        raise ProviderError(*_REFUSALS[message.finish])
    calls = tuple(block for block in message.content if isinstance(block, ToolCallBlock))
    await tools.run(place, calls)
    session_log.append(Draft(StepEnd(turn, step)), *_cut_off_note(cut_off))
    steered = bool(waiting(session_log, ("steer",)))
    verdict = await hooks.turn_stop(place, bool(calls) or steered)
    session_log.append(*(Draft(message, surface_op="append") for message in verdict.context))
    return StepDone(message.finish == "length", verdict.goes_on, verdict.stopped)


async def _prefix(model: SessionModel, hooks: SessionHooks, place: HookContext) -> tuple[Message, ...]:
    if model.composition is None:
        model.composition = await hooks.session_prefix(place)  # a cancelled one does not get here
    return model.composition.messages


_REFUSALS = {
    "content-filter": (
        "provider.filtered",
        "The provider's filter stopped this answer. Rephrase the prompt, or use another model.",
    ),
    "refusal": ("provider.refused", "The model refused to answer. Rephrase the prompt, or use another model."),
}


async def _record_header(
    session_log: SessionLog, model: SessionModel, hooks: SessionHooks, place: HookContext, offered: Assembled
) -> Request:
    config = await hooks.request(place, model.config_seed(), model.check_config)
    tools = model.freeze_tools(offered.tools, config)
    wanted = canonical_header(EpochHeader(config, offered.system, tools, model.prefix))
    draft = header_draft(session_log.folds.request_state.header, wanted, anchored=model.anchored)
    if draft is not None:
        session_log.append(draft)
    model.anchored = True
    return request_of(session_log.folds.request_state)


def _record_reply(session_log: SessionLog, turn: int, step: int) -> tuple[tuple[ToolCallBlock, ...], AssistantMessage]:
    """Record the reply; give the calls that it was cut off in, which do not run, and the message."""
    stream = session_log.folds.work.stream
    reply = assemble(stream.chunks)
    if reply.finish is None:
        raise ProviderError("provider.badStream", "The provider's answer ended without saying that it is complete. Try again.")
    header = request_of(session_log.folds.request_state).header
    config = header.config
    may_call = _may_call(reply.finish, reply.content)
    content = reply.content if may_call else without_calls(reply.content)
    written = _written_calls(header, reply) if may_call else None
    message = AssistantMessage(
        turn,
        step,
        with_call_ids(written or content, turn, step, session_log.is_used),
        config.provider,
        config.model,
        reply.finish,
        usage=reply.usage,
        written=written is not None,
    )
    session_log.append(Draft(message, surface_op="append", sources=stream.ranges))
    calls = () if may_call else tuple(block for block in reply.content if isinstance(block, ToolCallBlock))
    return calls, message


def _written_calls(header: EpochHeader, reply: Reply) -> tuple[Block, ...] | None:
    """Give the content of a reply whose text is calls of offered tools and nothing else; None for any other."""
    if not dialect_named(header.config.dialect).text_calls(header.config.dialect_options):
        return None
    return calls_in(reply.content, {tool.name for tool in header.tools or ()})


def _cut_off_note(calls: tuple[ToolCallBlock, ...]) -> tuple[Draft, ...]:
    """Give what tells the person and the model which calls a reply was cut off in."""
    if not calls:
        return ()
    lines = [
        f"- {call.name}, {'whole' if is_json_object(call.arguments) else 'cut off'}: {call.arguments[:_SHOWN_ARGUMENTS]}"
        for call in calls
    ]
    text = "The last reply was cut off while it called tools. None of these calls ran:\n" + "\n".join(lines)
    return (Draft(ContextMessage(text_content(text), CUT_OFF, "context"), surface_op="append"),)


def _may_call(finish: str, content: tuple[Block, ...]) -> bool:
    """Calls of a capped or refused reply may be cut. After a reason that nobody knows, whole arguments speak for them."""
    if finish in ("stop", "tool-calls"):
        return True
    return finish == "other" and all(is_json_object(block.arguments) for block in content if isinstance(block, ToolCallBlock))
