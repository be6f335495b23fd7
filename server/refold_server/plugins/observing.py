"""Owns the calling of handlers that only look on: at once, measured, with what goes wrong contained.

Nobody waits for them, and every event of every session stands behind them: one that is slow is named.
"""

from __future__ import annotations

import logging
from inspect import iscoroutine
from time import perf_counter
from typing import Any, Final

from refold_server.plugins.chain import Failure, failure_of
from refold_server.plugins.registry import Registered
from refold_server.tools.tool_failure import Interrupted

_log: Final = logging.getLogger(__name__)


def look(one: Registered[Any], seen: object) -> Failure | None:
    """Show a handler something and give how it failed, None where it did not."""
    began = perf_counter()
    failure: Failure | None = None
    try:
        given = one.handler(seen)
        if iscoroutine(given):
            given.close()
            raise TypeError("its handler is async, and nobody waits here")
    except Interrupted:
        raise
    except BaseException as error:  # noqa: BLE001 - what was seen stays as it is whatever a plugin thinks of it
        failure = failure_of(one, error)
    seconds = perf_counter() - began
    one.tally.add(seconds, failed=failure is not None)
    if one.tally.is_news(seconds):
        _log.warning(
            "The plugin %r took %d ms at %s, and every session waited for it. Let it do the work in a task of its own.",
            one.plugin,
            seconds * 1000,
            one.seam.name,
        )
    return failure
