"""Retries of a step's request: which failures are worth another attempt, how long to wait for it, and when to give up.

An attempt sends the same bytes as the one before and is recorded for itself; the retry is durable before the wait begins. Once
a chunk of the reply was recorded, people have seen it: then nothing is tried again. Waiting is ended by whoever cancels the
turn. Knows no provider and no encoder.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

import anyio

from refold_protocol.errors import ProviderError
from refold_protocol.session.events import Draft, LlmRetry
from refold_server.config import RetryConfig
from refold_server.requests.session_log import SessionLog

Attempt: TypeAlias = Callable[[int], Awaitable[None]]
"""Makes the attempt of that number, from 1: records it, sends it and records what comes. Raises ProviderError."""

Jitter: TypeAlias = Callable[[], float]
"""Gives a number from 0 to 1: clients that failed together do not come back together."""

_PASSING: Final = frozenset({"provider.rateLimited", "provider.overloaded", "provider.unreachable", "provider.timeout"})


async def with_retries(
    policy: RetryConfig, session_log: SessionLog, turn: int, step: int, attempt: Attempt, jitter: Jitter = random.random
) -> None:
    """Make attempts until one gives a reply. Raises the last one's ProviderError, which says how often was tried, and what
    `attempt` and the log raise."""
    began, number = anyio.current_time(), 1
    while True:
        try:
            return await attempt(number)
        except ProviderError as error:
            stream = session_log.folds.work.stream
            if not is_worth_another(error) or (stream.attempt == number and stream.ranges):
                raise _told(error, number) from None
            left = policy.budget_s - (anyio.current_time() - began)
            delay = wait_ms(policy, error, number, jitter())
            if number >= policy.attempts:
                raise _told(error, number) from None
            if delay > left * 1000:
                raise _told(error, number, f"the next attempt would begin in {delay / 1000:,.0f} s, {_OVER}") from None
            session_log.append(Draft(LlmRetry(turn, step, number, error.error_kind, delay)))
        await session_log.flush()
        await anyio.sleep(delay / 1000)
        number += 1


_OVER: Final = "and retry.budget_s does not allow for that"


def is_worth_another(error: ProviderError) -> bool:
    """Tell whether the same bytes may get a reply later. An account without credit, a key or a request that is wrong, and an
    answer of another kind than a stream stay what they are; a refused key is worth it when it was replaced meanwhile."""
    match error.error_kind:
        case "provider.auth":
            return error.retry_after_ms == 0
        case "provider.badStream":
            return error.status is None  # it ended before anything came
        case "provider.rejected":
            return error.status == 402 and error.retry_after_ms is not None  # a limit that money sets, for now
        case kind:
            return kind in _PASSING and not error.lasting


def wait_ms(policy: RetryConfig, error: ProviderError, failed: int, jitter: float) -> int:
    """Give how long to wait after attempt `failed`, in milliseconds: what the server asks for, else twice as long each time,
    half of it by chance."""
    if error.error_kind == "provider.auth":
        return 0
    longest = min(policy.cap_ms, policy.base_ms * 2 ** (failed - 1))
    own = round(longest * (0.5 + 0.5 * jitter))
    return own if error.retry_after_ms is None else max(own, error.retry_after_ms)


def _told(error: ProviderError, attempts: int, why: str = "") -> ProviderError:
    """Give the error with what was tried."""
    said = [error.message.rstrip(".")]
    if attempts > 1:
        said.append(f"this was attempt {attempts}")
    if why:
        said.append(why)
    if len(said) == 1:
        return error
    message, wait = "; ".join(said), error.retry_after_ms
    return ProviderError(error.error_kind, message, status=error.status, retry_after_ms=wait, request_id=error.request_id)
