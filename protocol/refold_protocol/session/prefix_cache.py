"""Comparison of two requests of one log: how many bytes of their bodies agree, and where they part.

Where the later request grew from the earlier one by appends alone, nothing is encoded: the recorded sizes tell. Else both
bodies are made and compared, by the encoders that the log names, if this release has them. Why they part is not known
here (`cache.py`).

Differences of two headers, part by part and short enough to be told.

Looks at the two headers alone, so it does not matter how the log recorded the change. It explains; the exact codec of
header deltas is another matter and never uses this. Parts have the names of a body's segments.

Attribution fold: what each request of a log shares with the one before, and which events broke it.

A provider caches what stands at the beginning of a prompt, so a request costs least when its body begins with all of the
one before. Whatever can break that is an event: a header event, or a replace on the surface. A step of the fold costs what
is new; only where a header changed or something was replaced two bodies are compared (`comparison.py`). What the figures
mean is `cache_words.py`'s matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import fields, replace

from refold_protocol.dialects.dialect import Dialect
from refold_protocol.dialects.dialect_table import DIALECTS, ships_encoder
from refold_protocol.dialects.growing_body import KINDS, Segment, common_prefix, excerpt, segment_at
from refold_protocol.errors import BlobUnknownError
from refold_protocol.session.append_only_list import AppendOnlyList
from refold_protocol.session.events import (
    AssistantMessage,
    EncoderId,
    Event,
    InstanceStart,
    Replace,
    RequestHeader,
    RequestSent,
    ToolResult,
)
from refold_protocol.session.messages import CallConfig, EpochHeader, Message, ToolSchema, Usage, encode_compact
from refold_protocol.session.projection import derive_message
from refold_protocol.session.request import NO_REQUESTS, Request, RequestState, horizon_step, request_of


class SentRequest(Struct, frozen=True):
    """A request that was sent: what it was, the surface nodes that its history came from, its encoder, the bytes of its
    body as recorded, the seq and the time (epoch ms) of its `request/sent`."""

    request: Request
    nodes: AppendOnlyList[Event]
    encoder: EncoderId
    bytes: int
    seq: int
    time: int


class Parting(Struct, frozen=True, gc=False, omit_defaults=True):
    """Where two bodies part: the byte, the segment that holds it (the earlier in a body's order, where it is another one in
    each), the seq of its node if it is of the history, and excerpts of both bodies around it."""

    offset: int
    segment: Segment
    before: str
    after: str
    node: int | None = None


class Comparison(Struct, frozen=True, gc=False, omit_defaults=True):
    """`common` counts the bytes that both bodies begin with; None where an encoder or an image is missing. `kept`: the later
    body has all of the earlier one but its closing brackets. `parting` is absent where it is kept, or not known."""

    kept: bool
    common: int | None
    parting: Parting | None = None


def compare(before: SentRequest, after: SentRequest, blobs: Mapping[str, bytes]) -> Comparison:
    """Compare a request with an earlier one."""
    dialects = [DIALECTS[sent.encoder.name] if ships_encoder(sent.encoder) else None for sent in (before, after)]
    one, other = dialects
    same_header = before.request.header is after.request.header or before.request.header == after.request.header
    if one is None or other is None:
        return Comparison(same_header and _begins_with(after, before), None)
    if one is other and same_header and after.request.history.extends(before.request.history):
        moved = 0 if before.bytes == after.bytes else one.moved_end(before.request, after.request)
        return Comparison(True, before.bytes - moved)
    try:
        return _compared(before, one, after, other, blobs)
    except BlobUnknownError:  # an image is gone from the store: what can be told without its bytes is told
        return Comparison(same_header and _begins_with(after, before), None)


def _compared(before: SentRequest, one: Dialect, after: SentRequest, other: Dialect, blobs: Mapping[str, bytes]) -> Comparison:
    was, now = one.encode(before.request, blobs), other.encode(after.request, blobs)
    common = common_prefix(was, now)
    if common >= len(was) - one.moved_end(before.request, after.request):
        return Comparison(True, common)
    here = segment_at(other.segments(after.request, blobs), common)
    there = segment_at(one.segments(before.request, blobs), common)
    sent, segment = (after, here) if KINDS.index(here.kind) <= KINDS.index(there.kind) else (before, there)
    node = _node_of(sent, segment.index) if segment.kind == "history" else None
    return Comparison(False, common, Parting(common, segment, excerpt(was, common), excerpt(now, common), node))


def _begins_with(after: SentRequest, before: SentRequest) -> bool:
    older, newer = before.request.history, after.request.history
    return newer.extends(older) or newer[: len(older)] == older[:]


def _node_of(sent: SentRequest, index: int | None) -> int | None:
    """Find the event that became message `index` of the history: some nodes become none."""
    seen = (node.seq for node in sent.nodes if derive_message(node) is not None)
    return next((seq for at, seq in enumerate(seen) if at == index), None)


class Drift(Struct, frozen=True, gc=False, omit_defaults=True):
    """One thing that differs. `part` is `config`, `tools`, `system` or `prefix`; `how` is `added`, `removed`, `changed` or
    `reordered`. `name` is that of a config member or a tool; `at` counts lines of the system text or messages of the
    prefix, from 1. `before` and `after` are excerpts around the difference, on one line."""

    part: str
    how: str
    name: str | None = None
    at: int | None = None
    before: str | None = None
    after: str | None = None

    @property
    def sentence(self) -> str:
        """Say it, for a person."""
        what = self._what()
        if self.before is None and self.after is None:
            return f"{what} {self.how}"
        if self.before is None:
            return f"{what} added: “{self.after}”"
        return f"{what} removed: “{self.before}”" if self.after is None else f"{what}: “{self.before}” → “{self.after}”"

    def _what(self) -> str:
        match self.part:
            case "config":
                return f"config {self.name}"
            case "tools":
                return "tools" if self.name is None else f"tool {self.name}"
            case "system":
                return f"system text, line {self.at}"
            case _:
                return f"prefix message {self.at}"


def drifts(before: EpochHeader, after: EpochHeader) -> tuple[Drift, ...]:
    """Give what differs between two canonical headers, in the order of a body; nothing exactly when they are equal."""
    if before == after:
        return ()
    return (
        *_config_drifts(before.config, after.config),
        *_tool_drifts(before.tools or (), after.tools or ()),
        *_system_drifts(before.system, after.system),
        *_prefix_drifts(before.message_prefix or (), after.message_prefix or ()),
    )


def _config_drifts(before: CallConfig, after: CallConfig) -> Iterator[Drift]:
    for field in fields(CallConfig):
        was, now = getattr(before, field.name), getattr(after, field.name)
        if was != now:
            quoted = _quoted(*(None if value is None else _plain(value) for value in (was, now)))
            yield Drift("config", _how(was, now), field.encode_name, None, *quoted)


def _tool_drifts(before: tuple[ToolSchema, ...], after: tuple[ToolSchema, ...]) -> Iterator[Drift]:
    if before == after:
        return
    was, now = ({tool.name: tool for tool in tools} for tools in (before, after))
    for name in (*was, *(name for name in now if name not in was)):
        one, other = was.get(name), now.get(name)
        if one is None or other is None:
            yield Drift("tools", _how(one, other), name)
        elif one != other:
            yield Drift("tools", "changed", name, None, *_quoted(_tool_text(one), _tool_text(other)))
    shared = [tool.name for tool in before if tool.name in now], [tool.name for tool in after if tool.name in was]
    if shared[0] != shared[1]:
        yield Drift("tools", "reordered")


def _system_drifts(before: str | None, after: str | None) -> Iterator[Drift]:
    if before == after:
        return
    if before is None or after is None:
        yield Drift("system", _how(before, after), None, 1, *_quoted(before, after))
        return
    was, now = before.split("\n"), after.split("\n")
    start = next((at for at, (one, other) in enumerate(zip(was, now, strict=False)) if one != other), min(len(was), len(now)))
    kept = min(len(was), len(now)) - start
    same = next((count for count in range(kept) if was[-1 - count] != now[-1 - count]), kept)
    gone, new = was[start : len(was) - same], now[start : len(now) - same]
    yield Drift("system", _how(gone or None, new or None), None, start + 1, *_quoted(_lines(gone), _lines(new)))


def _prefix_drifts(before: tuple[Message, ...], after: tuple[Message, ...]) -> Iterator[Drift]:
    if before == after:
        return
    pairs = enumerate(zip(before, after, strict=False))
    at = next((at for at, (one, other) in pairs if one != other), min(len(before), len(after)))
    one, other = (messages[at] if at < len(messages) else None for messages in (before, after))
    yield Drift("prefix", _how(one, other), None, at + 1, *_quoted(_message_text(one), _message_text(other)))


def _how(before: object, after: object) -> str:
    return "added" if before is None else "removed" if after is None else "changed"


def _quoted(before: str | None, after: str | None) -> tuple[str | None, str | None]:
    """Quote both around the first byte in which they differ; a lone one from its beginning."""
    was, now = (None if text is None else text.encode() for text in (before, after))
    offset = 0 if was is None or now is None else common_prefix(was, now)
    return tuple(None if text is None else excerpt(text, offset) for text in (was, now))  # pyright: ignore[reportReturnType]


def _plain(value: object) -> str:
    return value if isinstance(value, str) else encode_compact(value).decode()


def _lines(lines: list[str]) -> str | None:
    return "\n".join(lines) if lines else None


def _tool_text(tool: ToolSchema) -> str:
    return f"{tool.description}\n{tool.parameters}"


def _message_text(message: Message | None) -> str | None:
    return None if message is None else encode_compact(message).decode()


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

    request_state: RequestState = NO_REQUESTS
    instance: int = 0
    closed: AppendOnlyList[RequestRow] = AppendOnlyList()
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
    request_state = horizon_step(state.request_state, event)
    match event.data:
        case InstanceStart(instance=instance):
            return replace(state, request_state=request_state, instance=instance)
        case RequestSent(purpose="step") as sent:
            return _sent(state, request_state, event, sent, blobs)
        case RequestSent() if request_state.compaction is not None:
            return replace(
                state, request_state=request_state, asked=(event.seq, request_state.compaction.start.config.provider)
            )
        case AssistantMessage() as reply if state.open is not None and reply.usage is not None:
            return _reported(replace(state, request_state=request_state), state.open, reply, reply.usage)
        case _:
            cause = _cause(state, request_state, event)
            if cause is None:
                return state if request_state is state.request_state else replace(state, request_state=request_state)
            return replace(state, request_state=request_state, pending=(*state.pending, cause))


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


def _cause(state: Attribution, request_state: RequestState, event: Event) -> Cause | None:
    if isinstance(event.surface_op, Replace):
        shadowed = len(state.request_state.surface.nodes) - len(request_state.surface.nodes) + 1
        kind = "pruning" if isinstance(event.data, ToolResult) else "compaction"
        return Cause(event.seq, event.type, kind, nodes=shadowed)
    before, after = state.request_state.header, request_state.header
    if before is after or before is None or after is None or not (found := drifts(before, after)):
        return None
    anchor = isinstance(event.data, RequestHeader) and event.data.reason != "fallback"
    return Cause(event.seq, event.type, "instance" if anchor else "header", found, state.instance)


def _sent(
    state: Attribution, request_state: RequestState, event: Event, sent: RequestSent, blobs: Mapping[str, bytes]
) -> Attribution:
    request, before = request_of(request_state), state.last
    now = SentRequest(request, request_state.surface.nodes, sent.encoder, sent.bytes, event.seq, event.time)
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
    return Attribution(request_state, state.instance, closed, row, now, (), row.cacheable, state.caching)


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
