"""Params and the result of `request/explain`. Shapes only: it is loaded before a connection is answered.

The command `refold cache --json` prints the same objects, one for each request of a log.

Explanation of a request, as `request/explain` answers, and `refold cache --json` prints.

Handlers of `request/rebuild`, `request/explain`, `request/list` and `log/verify`: what was sent, why, and whether it is proved.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from refold_protocol.ids import SessionId
from refold_protocol.session.cache_report import (
    RequestHistory,
    cached_tokens,
    cause_sentence,
    prompt_tokens,
    reasons,
    verdict_of,
)
from refold_protocol.session.prefix_cache import Attribution, Cause, Parting, RequestRow
from refold_protocol.session.request_rows import SentRow
from refold_protocol.verify import Report
from refold_server.requests.offline_check import (
    RebuiltRequest,
    check_log,
    rebuilt_request,
    rebuilt_summary,
    request_history,
    request_rows,
)
from refold_server.rpc.dispatch import Handler
from refold_server.rpc.method import Counting, Cursor, Seq, request_row
from refold_server.sessions.session_registry import Sessions
from refold_server.sessions.session_views import examining, read_whole, reading
from refold_storage.interface import Handle


class StepPlace(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """A step, by the numbers of its turn and of itself."""

    turn: Counting
    step: Counting


class RequestExplainParams(Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """`request/explain`: the request of one step, compared with that of `against`, by default the request before it.
    Whichever of the two is later is compared with the earlier one."""

    session: SessionId
    turn: Counting
    step: Counting
    against: StepPlace | None = None


class ExplainedRequest(Struct, frozen=True, gc=False, omit_defaults=True):
    """A request that was sent: its step, the attempt, the seq of its `request/sent`, the bytes of its body. One for a summary,
    in `refold cache --json` alone, has the step 0.0 and the seq of its `compact/start` as `compaction`."""

    turn: int
    step: int
    attempt: int
    seq: int
    bytes: int
    compaction: int | None = None


class ExplainedCause(Struct, frozen=True, gc=False, omit_defaults=True):
    """An event between the two requests after which the later one may begin otherwise, and what it changed as a sentence.
    `kind` is `header`, `instance` (the first header of the loop instance `instance`), `compaction` or `pruning`."""

    seq: int
    type: str
    kind: str
    sentence: str
    instance: int | None = None


class ExplainedParting(Struct, frozen=True, gc=False, omit_defaults=True):
    """Where the two bodies part: the first byte that differs, the segment that holds it, and excerpts of both around it.

    `segment` is `config`, `tools`, `system`, `prefix`, `history` or `tail`, `where` the same in words; `index` counts tools
    and messages from 0, `name` is that of a setting or a tool, `node` the seq of the event that the message came from."""

    offset: int
    segment: str
    where: str
    before: str
    after: str
    index: int | None = None
    name: str | None = None
    node: int | None = None


class RequestExplainResult(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """`request/explain`: what the later request shares with the earlier one, `against` (absent for the first of a log).

    `common` counts the bytes that both bodies begin with, absent where an encoder is not shipped or an image is missing.
    `verdict`: `first`; `kept`: all bytes of the earlier body are there but its closing brackets; `break`: they are not;
    `moved`: they are, but went to another provider; `provider`: they are, and the provider reports clearly fewer tokens as
    cached than it had read; `summary`: the same, and it was asked for a summary in between, whose request may have taken their
    place; `unknown`: they are, and the provider's figures do not tell; `apart`: a summary's request, compared with none.
    `reasons` are sentences, the nearest first. Tokens are those that the provider reported, absent where it did not.
    """

    request: ExplainedRequest
    verdict: Literal["first", "kept", "break", "moved", "summary", "provider", "unknown", "apart"]
    causes: tuple[ExplainedCause, ...]
    reasons: tuple[str, ...]
    against: ExplainedRequest | None = None
    common: int | None = None
    parting: ExplainedParting | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None


def explain_result(row: RequestRow, against: RequestRow | None, state: Attribution) -> RequestExplainResult:
    """Give the result for a row compared with `against`; `state` is the fold of the whole log."""
    return RequestExplainResult(
        _request(row),
        verdict_of(row, state.caching),
        tuple(map(_cause, row.causes)),
        tuple(reasons(row, state)),
        None if against is None else _request(against),
        row.common,
        None if row.parting is None else _parting(row.parting),
        prompt_tokens(row),
        cached_tokens(row),
    )


def explained_log(history: RequestHistory) -> list[RequestExplainResult]:
    """Give the result for each request of a log, compared with the one before; those for summaries stand apart."""
    state = history.state
    steps = [explain_result(now, before, state) for before, now in pairwise((None, *state.rows)) if now is not None]
    summaries = [_summary_result(row) for row in history.requests.rows if row.purpose == "summary"]
    return sorted([*steps, *summaries], key=lambda result: result.request.seq)


def _summary_result(row: SentRow) -> RequestExplainResult:
    request = ExplainedRequest(0, 0, row.attempt, row.seq, row.bytes, row.compaction)
    prompt, cached = (None, None) if row.usage is None else (row.usage.prompt_tokens, row.usage.cache_read_tokens)
    return RequestExplainResult(request, "apart", (), (), prompt_tokens=prompt, cached_tokens=cached)


def _request(row: RequestRow) -> ExplainedRequest:
    return ExplainedRequest(row.turn, row.step, row.attempt, row.seq, row.bytes)


def _cause(cause: Cause) -> ExplainedCause:
    instance = cause.instance if cause.kind == "instance" else None
    return ExplainedCause(cause.seq, cause.type, cause.kind, cause_sentence(cause), instance)


def _parting(parting: Parting) -> ExplainedParting:
    segment = parting.segment
    return ExplainedParting(
        parting.offset,
        segment.kind,
        segment.words,
        parting.before,
        parting.after,
        segment.index,
        segment.name,
        parting.node,
    )


class RequestRebuildResult(Struct, frozen=True, gc=False, rename="camel"):
    """`request/rebuild`: the exact body as text, its SHA-256 and the Request's, in hex. `verdict` compares with what was
    recorded when it was sent: `unshipped` where this release lacks that encoder version, `unsent` where nothing was."""

    body: str
    sha256: str
    request_sha256: str
    verdict: Literal["equal", "different", "unshipped", "unsent"]


class Mismatch(Struct, frozen=True, gc=False, omit_defaults=True):
    """The first thing that differs, at the event `seq`, or somewhere in the events `seq` to `last`: `what` is `record`,
    `chain`, `head`, `line`, `grammar`, `surface`, `header`, `pairing`, `request` or `body`; `message` says what was expected
    and what was found."""

    what: str
    seq: int
    message: str
    last: int | None = None


class LogVerifyResult(Struct, frozen=True, gc=False, omit_defaults=True):
    """`log/verify`: how many events and requests were checked, how many requests came out equal, how many were of an
    encoder version that this release does not ship; the first mismatch, if any. `inherited` of the requests are the parent's of
    this fork. `differences` are all mismatches in the order of the log, on the wire the first 1,000. `refold verify --json`
    prints the same members, and besides `session` and `verified`."""

    events: int
    requests: int
    equal: int
    unshipped: int
    mismatch: Mismatch | None = None
    inherited: int = 0
    differences: tuple[Mismatch, ...] = ()


def verify_result(report: Report, *, limit: int | None = None) -> LogVerifyResult:
    """Give the result of a check, with at most `limit` differences."""
    differences = tuple(Mismatch(one.check, one.seq, one.message, one.last) for one in report.differences[:limit])
    first = differences[0] if differences else None
    return LogVerifyResult(
        report.events, report.requests, report.equal, report.not_shipped, first, report.inherited, differences
    )


class RequestListParams(Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """`request/list`: the requests that were sent behind the event `after` (absent: from the first on), at most `limit`."""

    session: SessionId
    after: Cursor | None = None
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 1_000


class RequestListResult(Struct, frozen=True, gc=False, omit_defaults=True):
    """`request/list`: one row a request, oldest first; `next` is the `after` of the next page, absent on the last."""

    requests: tuple[SentRow, ...]
    next: int | None = None


class RequestRebuildParams(Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """`request/rebuild`: the request of one step, or of the compaction whose `compact/start` has the seq `compact`."""

    session: SessionId
    turn: Counting | None = None
    step: Counting | None = None
    compact: Seq | None = None

    def __post_init__(self) -> None:
        if (self.turn is None) != (self.step is None) or (self.turn is None) == (self.compact is None):
            raise ValueError("give either `turn` and `step`, or `compact`")


class LogVerifyParams(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """`log/verify`: the whole log."""

    session: SessionId


class ProofMethods:
    """The requests of one connection that prove something."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def handlers(self) -> Mapping[str, Handler]:
        """Give the handlers by method name."""
        return {
            "request/rebuild": self.rebuild,
            "request/explain": self.explain,
            "request/list": self.list,
            "log/verify": self.verify,
        }

    async def rebuild(self, params: RequestRebuildParams) -> RequestRebuildResult:
        """request/rebuild."""

        async def rebuild() -> RebuiltRequest:
            async with reading(self._sessions, params.session) as (handle, _):
                return await _rebuilt(handle, params)

        rebuilt = await read_whole(rebuild)
        return RequestRebuildResult(rebuilt.body.decode(), rebuilt.sha256, rebuilt.request_sha256, rebuilt.verdict)

    async def explain(self, params: RequestExplainParams) -> RequestExplainResult:
        """request/explain."""

        async def look() -> RequestHistory:
            async with reading(self._sessions, params.session) as (handle, _):
                return await request_history(handle)

        history = await read_whole(look)
        against = None if params.against is None else (params.against.turn, params.against.step)
        found = history.explain((params.turn, params.step), against)
        return explain_result(found.row, found.against, found.state)

    async def verify(self, params: LogVerifyParams) -> LogVerifyResult:
        """log/verify."""

        async def check() -> Report:
            async with examining(self._sessions, params.session) as handle:
                return await check_log(handle)

        return verify_result(await read_whole(check), limit=_TOLD_DIFFERENCES)

    async def list(self, params: RequestListParams) -> RequestListResult:
        """request/list."""

        async def gather() -> list[SentRow]:
            async with reading(self._sessions, params.session) as (handle, _):
                return await request_rows(handle)

        after = -1 if params.after is None else params.after
        rows = [row for row in await read_whole(gather) if row.seq > after]
        more = rows[params.limit - 1].seq if len(rows) > params.limit else None
        return RequestListResult(tuple(rows[: params.limit]), more)


async def _rebuilt(handle: Handle, params: RequestRebuildParams) -> RebuiltRequest:
    if params.compact is not None:
        return await rebuilt_summary(handle, params.compact)
    assert params.turn is not None  # the params' own check: a step is named then
    assert params.step is not None
    return await rebuilt_request(handle, params.turn, params.step)


_TOLD_DIFFERENCES: Final = 1_000

METHODS: Final = (
    request_row("request/rebuild", RequestRebuildParams, RequestRebuildResult, "Rebuild a request."),
    request_row("request/explain", RequestExplainParams, RequestExplainResult, "Say what broke a prefix."),
    request_row("request/list", RequestListParams, RequestListResult, "List the requests that were sent."),
    request_row("log/verify", LogVerifyParams, LogVerifyResult, "Prove a log against its own records."),
)
"""The methods of this family."""
