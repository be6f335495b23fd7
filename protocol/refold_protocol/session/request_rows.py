"""Requests of a log, one row each: what was sent, what it cost, how long it took and how it ended, for steps and summaries.

Joins what the log says in several events. Judges nothing and rebuilds nothing: `verify.py` and `prefix_cache.py` do.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from refold_protocol.session.events import (
    AssistantMessage,
    CompactEnd,
    CompactStart,
    CompactSummary,
    Event,
    LlmRetry,
    RequestHeader,
    RequestHeaderDelta,
    RequestSent,
    TurnEnd,
)
from refold_protocol.session.messages import Usage

FAILED = "failed"
"""The end of a summary that was thrown away, and after which another one was asked for."""


class SentRow(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """A request that was sent; `seq` is that of its `request/sent`, `time` its Unix epoch ms. `purpose` is `step` or `summary`.

    `turn` and `step` say for which step, `compaction` is the seq of the `compact/start` of a summary. `sha256` is that of the
    body, which has `bytes`; `digest` that of the canonical request. `usage` has the tokens by bucket, as the provider reported
    them; absent where it did not. `duration_ms` lasts to the `end`, both absent while there is none: for a whole reply the
    reason of its finish, `interrupted` for one that was stopped, for a failure the kind of its error, for a summary that was
    thrown away `failed`. `inherited`: the request is the parent's of this fork.
    """

    seq: int
    time: int
    purpose: str
    attempt: int
    model: str
    dialect: str
    bytes: int
    sha256: str
    digest: str
    turn: int | None = None
    step: int | None = None
    compaction: int | None = None
    usage: Usage | None = None
    duration_ms: int | None = None
    end: str | None = None
    inherited: bool = False


class RequestRows:
    """Gathers the rows of a log, whose events up to `inherited` (−1: none) are those of its parent. Feed all events, oldest
    first; chunks may be left out."""

    def __init__(self, inherited: int = -1) -> None:
        self.rows: list[SentRow] = []
        self._inherited = inherited
        self._route = ""
        self._compaction: tuple[int, str] | None = None

    def feed(self, event: Event) -> None:
        """Take the next event."""
        match event.data:
            case RequestHeader() | RequestHeaderDelta() as header:
                self._route = route_of(header) or self._route
            case CompactStart(config=config):
                self._compaction = event.seq, f"{config.provider}/{config.model}"
            case RequestSent() as sent:
                self._end(event, FAILED)
                self.rows.append(self._sent(event, sent))
            case AssistantMessage() as reply if event.surface_op == "append":
                self._end(event, "interrupted" if reply.interrupted else reply.finish, reply.usage)
            case LlmRetry(code=code):
                self._end(event, code)
            case TurnEnd(reason=reason):
                self._end(event, reason.kind if reason.error is None else reason.error.kind)
            case CompactSummary(usage=usage):
                self._end(event, "stop", usage)
            case CompactEnd() as end:
                self._end_compaction(event, end)
            case _:
                pass

    def _sent(self, event: Event, sent: RequestSent) -> SentRow:
        compaction, model = None, self._route
        if sent.purpose == "summary" and self._compaction is not None:
            compaction, model = self._compaction
        return SentRow(
            event.seq,
            event.time,
            sent.purpose,
            sent.attempt,
            model,
            sent.encoder.name,
            sent.bytes,
            sent.sha256,
            sent.request_sha256,
            sent.turn,
            sent.step,
            compaction,
            inherited=event.seq <= self._inherited,
        )

    def _end(self, event: Event, end: str, usage: Usage | None = None) -> None:
        """Note the end of the latest request, where it has none yet."""
        if self.rows and self.rows[-1].end is None:
            row = self.rows[-1]
            self.rows[-1] = replace(row, usage=usage, duration_ms=event.time - row.time, end=end)

    def _end_compaction(self, event: Event, end: CompactEnd) -> None:
        if self._compaction is None:
            return
        began, _ = self._compaction
        if self.rows and self.rows[-1].compaction == began:
            self._end(event, FAILED if end.error is None else end.error.kind)
        usages = {one.attempt: one.usage for one in end.unused}
        for place in range(len(self.rows) - 1, -1, -1):
            row = self.rows[place]
            if row.compaction != began:
                break
            if row.usage is None and row.attempt in usages:
                self.rows[place] = replace(row, usage=usages[row.attempt])
        self._compaction = None


def route_of(header: RequestHeader | RequestHeaderDelta) -> str | None:
    """Give the model, as `provider/model`, that a header event sends requests to; None where it changes nothing about it."""
    config = header.header.config if isinstance(header, RequestHeader) else header.config
    return None if config is None else f"{config.provider}/{config.model}"
