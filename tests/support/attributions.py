"""Logs of requests whose bodies are real, and what the attribution fold says of them."""

from __future__ import annotations

from refold_protocol.dialects.chat_completions import CHAT_COMPLETIONS
from refold_protocol.session.cache_report import reasons, verdict_of
from refold_protocol.session.messages import EpochHeader, Usage
from refold_protocol.session.prefix_cache import RequestRow, fold_attribution
from tests.support.logs import Log


def recorded() -> Log:
    """A log whose bodies are real, with its first instance begun."""
    log = Log(CHAT_COMPLETIONS)
    log.instance()
    return log


def ask(log: Log, header: EpochHeader | None = None, usage: Usage | None = None) -> None:
    """Write a turn of one step."""
    log.turn(f"Question {log.work.last_turn + 1}?")
    log.step(header)
    log.reply("Answer.", usage=usage)
    log.end_step()
    log.end_turn()


def rows(log: Log) -> tuple[RequestRow, ...]:
    """Give what is known of each request."""
    return fold_attribution(log.events).rows


def verdicts(log: Log) -> list[str]:
    """Give the verdict on each request."""
    state = fold_attribution(log.events)
    return [verdict_of(row, state.caching) for row in state.rows]


def why(log: Log) -> list[str]:
    """Give the reasons of the last request."""
    state = fold_attribution(log.events)
    return list(reasons(state.rows[-1], state))
