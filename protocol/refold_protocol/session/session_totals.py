"""Summary fold: what a session list shows of a log. A cache beside the log; it can be rebuilt from it any time.

Never decides anything: whoever needs the truth folds the events.
"""

from __future__ import annotations

from functools import reduce

from msgspec import Struct
from msgspec.structs import replace

from refold_protocol.session.events import (
    AssistantMessage,
    CompactEnd,
    CompactSummary,
    Event,
    InputAccepted,
    InstanceStart,
    RequestHeader,
    RequestHeaderDelta,
    SessionSettings,
    SessionTitle,
    TurnStart,
)
from refold_protocol.session.messages import CallConfig, EpochHeader, Usage, text_of

TITLE_CHARACTERS = 80
"""How much of the first prompt stands in for a title that nobody gave."""


class UsageTotals(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """Tokens of all replies and summaries of a log, in the disjoint buckets of Usage. Unknown buckets count as nothing here."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0

    def plus(self, usage: Usage) -> UsageTotals:
        """Give these totals with one more call added."""
        return UsageTotals(
            self.input_tokens + usage.input_tokens,
            self.output_tokens + usage.output_tokens,
            self.cache_read_tokens + (usage.cache_read_tokens or 0),
            self.cache_write_tokens + (usage.cache_write_tokens or 0),
        )

    def with_totals(self, other: UsageTotals) -> UsageTotals:
        """Give the sum of two totals."""
        return UsageTotals(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cache_read_tokens + other.cache_read_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
        )


class SessionTotals(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """State of the fold. `title` is the given one, else the beginning of the first prompt; `last_activity` is epoch ms.
    `usage` is what the session cost itself, `inherited` what the events cost that a fork begins with."""

    title: str | None = None
    titled: bool = False
    model: str | None = None
    turns: int = 0
    last_activity: int | None = None
    usage: UsageTotals = UsageTotals()
    inherited: UsageTotals = UsageTotals()


EMPTY_SUMMARY = SessionTotals()


def as_fork(state: SessionTotals) -> SessionTotals:
    """Give the totals of a fork that begins with events of these totals: what they cost was the parent's."""
    return replace(state, usage=UsageTotals(), inherited=state.inherited.with_totals(state.usage))


def summary_step(state: SessionTotals, event: Event) -> SessionTotals:
    """Fold one event. Opening and resuming are not activity; only inputs, turns and replies are."""
    match event.data:
        case SessionTitle(title=title):
            return replace(state, title=title, titled=True)
        case SessionSettings(model=str(model)):
            return replace(state, model=model)
        case RequestHeader(header=EpochHeader(config=config)) | RequestHeaderDelta(config=CallConfig() as config):
            return replace(state, model=f"{config.provider}/{config.model}")
        case InputAccepted(mode=mode, content=content):
            title = state.title
            if title is None and mode == "prompt":
                title = text_of(content).strip().split("\n", 1)[0][:TITLE_CHARACTERS].rstrip() or None
            return replace(state, title=title, last_activity=event.time)
        case TurnStart(turn=turn):
            return replace(state, turns=turn, last_activity=event.time)
        case AssistantMessage() as reply:
            usage = state.usage if reply.usage is None else state.usage.plus(reply.usage)
            return replace(state, model=f"{reply.provider}/{reply.model}", usage=usage, last_activity=event.time)
        case CompactSummary(usage=Usage() as usage):  # it was paid for like any reply
            return replace(state, usage=state.usage.plus(usage))
        case CompactEnd(unused=tuple(unused)) if unused:  # so were those that did not land
            return replace(state, usage=reduce(lambda totals, one: totals.plus(one.usage), unused, state.usage))
        case InstanceStart(reason="fork"):
            return as_fork(state)
        case _:
            return state
