"""Owns the attribution fold: what each request of a log shares with the one before, and which events broke it.

A provider caches what stands at the beginning of a prompt, so a request costs least when its body begins with all of the
one before. Whatever can break that is an event: a header event, or a replace on the surface. A step of the fold costs what
is new; only where a header changed or something was replaced two bodies are compared (`comparison.py`). What the figures
mean is `cache_words.py`'s matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from refold_protocol.session.comparison import Comparison, Parting, SentRequest, compare
from refold_protocol.session.drift import Drift, drifts
from refold_protocol.session.events import (
    AssistantMessage,
    Event,
    InstanceStart,
    Replace,
    RequestHeader,
    RequestSent,
    ToolResult,
)
from refold_protocol.session.messages import Usage
from refold_protocol.session.rebuild import NOTHING_SEEN, Horizon, horizon_step, request_of
from refold_protocol.session.tape import Tape

NO_BLOBS: Final[Mapping[str, bytes]] = {}

Caching: TypeAlias = tuple[tuple[str, str, int], ...]
"""Provider, model, and the least number of cached tokens above 0 that the pair reported in a log."""


class Cause(Struct, frozen=True, gc=False, omit_defaults=True):
    """An event between two requests after which the later one may begin otherwise.

    `kind` is `header` (the loop recorded a changed header), `instance` (the first header of an instance differs from the
    last one of the instance before), `compaction` or `pruning` (a replace). `drifts` say what differs in a header;
    `instance` is its number; `nodes` counts the surface nodes that a replace took away.
    """

    seq: int
    type: str
    kind: str
    drifts: tuple[Drift, ...] = ()
    instance: int | None = None
    nodes: int | None = None


class RequestRow(Struct, frozen=True, gc=False, omit_defaults=True):
    """What is known of one `request/sent`.

    `course`, from the bytes alone: `first` (there is none before), `kept` (all bytes of the one before are there, but for
    closing brackets), `moved` (kept, but the request went to another provider) or `break`. `common` counts the bytes that
    both bodies begin with, None where that cannot be told; `parting` is where a break begins. `causes` are all events since
    the request before that could break something, whether they did or not. `idle_ms` is the time since the request before.
    `usage` is what the provider reported of this step, None so far. `cacheable` is the least number of tokens that the
    provider has seen before: the prompt of the latest request whose bytes are all kept; None where no such one is known.
    `summary` is the seq of the latest `request/sent` since the request before that asked the same provider for a summary.
    """

    turn: int
    step: int
    attempt: int
    seq: int
    provider: str
    model: str
    bytes: int
    course: str
    common: int | None
    parting: Parting | None = None
    causes: tuple[Cause, ...] = ()
    idle_ms: int | None = None
    usage: Usage | None = None
    cacheable: int | None = None
    summary: int | None = None


class Attribution(Struct, frozen=True):
    """State of the fold. `last` is the latest request of a step, `pending` the causes since, `asked` the latest request for a
    summary since: its seq and its provider. Ask for `rows`."""

    horizon: Horizon = NOTHING_SEEN
    instance: int = 0
    closed: Tape[RequestRow] = Tape()
    open: RequestRow | None = None
    last: SentRequest | None = None
    pending: tuple[Cause, ...] = ()
    cacheable: int | None = None
    caching: Caching = ()
    asked: tuple[int, str] | None = None

    @property
    def rows(self) -> tuple[RequestRow, ...]:
        """One row for each request of a step, in the order of the log."""
        return self.closed[:] if self.open is None else (*self.closed, self.open)


NOTHING_ASKED: Final = Attribution()


def attribution_step(state: Attribution, event: Event, blobs: Mapping[str, bytes] = NO_BLOBS) -> Attribution:
    """Fold one event. `blobs` has the bytes of images by digest; one that is missing makes `common` unknown where it
    matters. Raises what rebuilding requests raises."""
    horizon = horizon_step(state.horizon, event)
    match event.data:
        case InstanceStart(instance=instance):
            return replace(state, horizon=horizon, instance=instance)
        case RequestSent(purpose="step") as sent:
            return _sent(state, horizon, event, sent, blobs)
        case RequestSent() if horizon.compaction is not None:
            return replace(state, horizon=horizon, asked=(event.seq, horizon.compaction.start.config.provider))
        case AssistantMessage() as reply if state.open is not None and reply.usage is not None:
            return _reported(replace(state, horizon=horizon), state.open, reply, reply.usage)
        case _:
            cause = _cause(state, horizon, event)
            if cause is None:
                return state if horizon is state.horizon else replace(state, horizon=horizon)
            return replace(state, horizon=horizon, pending=(*state.pending, cause))


def fold_attribution(
    events: Iterable[Event], state: Attribution = NOTHING_ASKED, blobs: Mapping[str, bytes] = NO_BLOBS
) -> Attribution:
    """Fold `events`, going on from `state`."""
    for event in events:
        state = attribution_step(state, event, blobs)
    return state


def least_cached(caching: Caching, row: RequestRow) -> int | None:
    """Give the least number of cached tokens that a row's provider and model reported; None where they never did."""
    return next((least for provider, model, least in caching if (provider, model) == (row.provider, row.model)), None)


def course_of(found: Comparison, *, moved: bool) -> str:
    """Give the course of a request that was compared with an earlier one; `moved`: it went to another provider."""
    if not found.kept:
        return "break"
    return "moved" if moved else "kept"


def _cause(state: Attribution, horizon: Horizon, event: Event) -> Cause | None:
    if isinstance(event.surface_op, Replace):
        shadowed = len(state.horizon.surface.nodes) - len(horizon.surface.nodes) + 1
        kind = "pruning" if isinstance(event.data, ToolResult) else "compaction"
        return Cause(event.seq, event.type, kind, nodes=shadowed)
    before, after = state.horizon.header, horizon.header
    if before is after or before is None or after is None or not (found := drifts(before, after)):
        return None
    anchor = isinstance(event.data, RequestHeader) and event.data.reason != "fallback"
    return Cause(event.seq, event.type, "instance" if anchor else "header", found, state.instance)


def _sent(state: Attribution, horizon: Horizon, event: Event, sent: RequestSent, blobs: Mapping[str, bytes]) -> Attribution:
    request, before = request_of(horizon), state.last
    now = SentRequest(request, horizon.surface.nodes, sent.encoder, sent.bytes, event.seq, event.time)
    config = request.header.config
    course, common, parting = "first", None, None
    if before is not None:
        found = compare(before, now, blobs)
        course = course_of(found, moved=config.provider != before.request.header.config.provider)
        common, parting = found.common, found.parting
    row = RequestRow(
        sent.turn or 0,
        sent.step or 0,
        sent.attempt,
        event.seq,
        config.provider,
        config.model,
        sent.bytes,
        course,
        common,
        parting,
        state.pending,
        None if before is None else event.time - before.time,
        cacheable=state.cacheable if course == "kept" else None,
        summary=None if state.asked is None or state.asked[1] != config.provider else state.asked[0],
    )
    closed = state.closed if state.open is None else state.closed.then(state.open)
    return Attribution(horizon, state.instance, closed, row, now, (), row.cacheable, state.caching)


def _reported(state: Attribution, row: RequestRow, reply: AssistantMessage, usage: Usage) -> Attribution:
    if (reply.turn, reply.step) != (row.turn, row.step):
        return state
    caching = _with_report(state.caching, row, usage.cache_read_tokens or 0)
    return replace(state, open=replace(row, usage=usage), cacheable=usage.prompt_tokens, caching=caching)


def _with_report(caching: Caching, row: RequestRow, cached: int) -> Caching:
    known = least_cached(caching, row)
    if cached == 0 or (known is not None and known <= cached):
        return caching
    others = tuple(entry for entry in caching if entry[:2] != (row.provider, row.model))
    return (*others, (row.provider, row.model, cached))
