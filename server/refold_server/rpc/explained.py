"""Owns how an explanation of a request becomes what `request/explain` answers, and `refold cache --json` prints."""

from __future__ import annotations

from refold_protocol.rpc.explaining import ExplainedCause, ExplainedParting, ExplainedRequest, RequestExplainResult
from refold_protocol.session.cache_report import cached_tokens, cause_sentence, prompt_tokens, reasons, verdict_of
from refold_protocol.session.prefix_cache import Attribution, Cause, Parting, RequestRow


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
