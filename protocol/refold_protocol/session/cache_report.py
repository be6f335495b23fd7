"""Report of the prefix cache: the verdict on a request, and the reasons in words for a person.

A verdict may look at the whole log: whether a provider reports cached tokens at all shows only where it does so. Pure.

Explanation of one request against an earlier one of the same log, whichever two they are.

Gathers the requests of a log while it is fed, then compares any two. Keeps no bodies: requests share their histories, so
a gathered request costs little. Words and verdicts are `cache_words.py`'s.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from refold_protocol.errors import TurnMismatchError
from refold_protocol.session.events import Event, RequestSent
from refold_protocol.session.prefix_cache import (
    NO_BLOBS,
    NOTHING_ASKED,
    Attribution,
    Caching,
    Cause,
    Parting,
    RequestRow,
    SentRequest,
    attribution_step,
    compare,
    course_of,
    least_cached,
)
from refold_protocol.session.request_rows import RequestRows

MIN_LOST_TOKENS: Final = 4096
"""Fewer tokens than these may be missing without being lost, unless the provider was seen to count finer: providers cache
in blocks of 16 to 1,024 tokens, and some only prompts from 4,096 tokens on."""

Verdict: TypeAlias = Literal["first", "kept", "break", "moved", "summary", "provider", "unknown"]


def verdict_of(row: RequestRow, caching: Caching) -> Verdict:
    """Judge a request by its bytes and by what the provider reported; `caching` is that of the folded log.

    `first`, `break` and `moved` are those of RequestRow. Of requests that keep all bytes of the one before, `provider` ones
    have clearly fewer tokens reported as cached than the prompt before had. `summary` ones have as well, but their provider was
    asked for a summary in between, and one that keeps a single prompt had no room for both. `kept` ones have not, and on
    `unknown` ones nothing can be said: the provider did not report cached tokens of this reply, reports none in the whole log
    (many say 0 and mean that they do not count), or said nothing of the prompt before.

    Clearly fewer: as many are missing as the provider's least report above 0 in this log had, or MIN_LOST_TOKENS. A provider
    that rounds down to blocks reports at least one block, so what it rounds away is less than any report of it.
    """
    match row.course:
        case "first" | "break" | "moved":
            return row.course
        case _:
            cached = cached_tokens(row)
            least = least_cached(caching, row)
            if cached is None or row.cacheable is None or least is None:
                return "unknown"
            if row.cacheable - cached < min(least, MIN_LOST_TOKENS):
                return "kept"
            return "provider" if row.summary is None else "summary"


def cached_tokens(row: RequestRow) -> int | None:
    """Give the tokens that the provider says it read from its cache; None where it says nothing of that."""
    return None if row.usage is None else row.usage.cache_read_tokens


def prompt_tokens(row: RequestRow) -> int | None:
    """Give the tokens of the whole prompt, as the provider counted them; None where it did not."""
    return None if row.usage is None else row.usage.prompt_tokens


def reasons(row: RequestRow, state: Attribution) -> Iterator[str]:
    """Say why a request could not be served from the provider's cache, one sentence each, the nearest reason first; none
    where it could, or where nothing is known against it."""
    match verdict_of(row, state.caching):
        case "break":
            yield from break_sentences(row.causes, row.parting)
        case "moved":
            yield from (cause_sentence(cause) for cause in row.causes)
        case "provider":
            yield f"{_lost(row)}, {_span(row.idle_ms or 0)} after the request before"
        case "summary":
            yield f"{_lost(row)}; event {row.summary} request/sent asked it for a summary in between"
        case _:
            return


def _lost(row: RequestRow) -> str:
    cached = cached_tokens(row) or 0
    return f"the bytes are kept, but of {row.cacheable:,} tokens that the provider had read, it reports {cached:,} as cached"


def break_sentences(causes: tuple[Cause, ...], parting: Parting | None) -> Iterator[str]:
    """Say what broke a prefix: the causes, that of the first break first, then the place."""
    for cause in sorted(causes, key=lambda cause: not _explains(cause, parting)):
        yield cause_sentence(cause)
    if not causes:
        yield "no event of the log says why"
    if parting is not None:
        node = "" if parting.node is None else f" (event {parting.node})"
        yield f"from byte {parting.offset:,} on, in {parting.segment.words}{node}: “{parting.before}” → “{parting.after}”"


def cause_sentence(cause: Cause) -> str:
    """Say which event, and what it changed."""
    where = f"event {cause.seq} {cause.type}"
    what = "; ".join(drift.sentence for drift in cause.drifts)
    match cause.kind:
        case "instance":
            return f"{where}, the first of instance {cause.instance}: {what}"
        case "compaction" | "pruning":
            nodes = "1 node" if cause.nodes == 1 else f"{cause.nodes} nodes"
            return f"{where}: {cause.kind} put it in place of {nodes}"
        case _:
            return f"{where}: {what}"


def _explains(cause: Cause, parting: Parting | None) -> bool:
    if parting is None:
        return True
    if parting.segment.kind in ("history", "tail"):
        return not cause.drifts
    return any(drift.part == parting.segment.kind for drift in cause.drifts)


def _span(ms: int) -> str:
    seconds = ms // 1000
    if seconds < 120:
        return f"{seconds} s"
    return f"{seconds // 60} min" if seconds < 7200 else f"{seconds // 3600} h"


class Explanation(Struct, frozen=True):
    """`row` is the later request, with what it shares with the earlier one, `against`, and all causes between the two;
    both are rows of a step's last attempt. `against` is None for the first request of a log. `state` is that of the log."""

    row: RequestRow
    against: RequestRow | None
    state: Attribution


class RequestHistory:
    """The requests of one log. Feed all events, oldest first, then ask."""

    def __init__(self, blobs: Mapping[str, bytes] = NO_BLOBS) -> None:
        self._blobs = blobs
        self._sent: dict[tuple[int, int], SentRequest] = {}
        self.state = NOTHING_ASKED
        self.requests = RequestRows()
        """All requests, those for summaries too."""

    def feed(self, event: Event) -> None:
        """Take the next event. Raises what the attribution fold raises."""
        self.requests.feed(event)
        self.state = attribution_step(self.state, event, self._blobs)
        if isinstance(event.data, RequestSent) and self.state.last is not None and self.state.last.seq == event.seq:
            self._sent[event.data.turn or 0, event.data.step or 0] = self.state.last

    def explain(self, request: tuple[int, int], against: tuple[int, int] | None = None) -> Explanation:
        """Explain the request of step `request` (turn, step) by that of step `against`, by default the step before it that
        sent one. In whichever order they are named, the later one is compared with the earlier one. Raises
        TurnMismatchError for a step that sent none, and for one compared with itself."""
        places = list(self._sent)
        later = self._place(places, request)
        if against is None:
            if later == 0:
                return Explanation(self._rows(request)[-1], None, self.state)
            earlier = later - 1
        else:
            earlier, later = sorted((self._place(places, against), later))
        if earlier == later:
            raise TurnMismatchError(f"step {_name(request)} cannot be compared with itself", turn=request[0])
        return self._explained(places[earlier], places[later], adjacent=later == earlier + 1)

    def _explained(self, earlier: tuple[int, int], later: tuple[int, int], *, adjacent: bool) -> Explanation:
        before, rows = self._rows(earlier)[-1], self._rows(later)
        found = compare(self._sent[earlier], self._sent[later], self._blobs)
        course = course_of(found, moved=rows[-1].provider != before.provider)
        known = rows[0].cacheable if adjacent else prompt_tokens(before)
        between = [row for row in self.state.rows if before.seq < row.seq <= rows[-1].seq]
        row = replace(
            rows[-1],
            course=course,
            common=found.common,
            parting=found.parting,
            causes=tuple(cause for row in between for cause in row.causes),
            idle_ms=self._sent[later].time - self._sent[earlier].time,
            cacheable=known if course == "kept" else None,
            summary=max((row.summary for row in between if row.summary is not None), default=None),
        )
        return Explanation(row, before, self.state)

    def _rows(self, place: tuple[int, int]) -> list[RequestRow]:
        return [row for row in self.state.rows if (row.turn, row.step) == place]

    def _place(self, places: list[tuple[int, int]], wanted: tuple[int, int]) -> int:
        if wanted not in self._sent:
            raise TurnMismatchError(f"no request of step {_name(wanted)} is in this log", turn=wanted[0])
        return places.index(wanted)


def _name(place: tuple[int, int]) -> str:
    return f"{place[0]}.{place[1]}"
