"""Owns the thread in which plugins are imported: whoever waits can be heard meanwhile, and an import that never ends keeps no
process alive. Must not know what plugins are."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from refold_protocol.errors import PluginError

T = TypeVar("T")


async def aside(work: Callable[[], T]) -> T:
    """Do work in a thread of its own and give what it gives. Raises what it raises, and PluginError where that is neither an
    error nor refold's own doing, as `sys.exit()` or a cancellation out of a module. Cancelled, it leaves the thread alone."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[tuple[T]] = loop.create_future()

    def settle(given: tuple[T] | None, error: Exception) -> None:
        if answer.done():  # nobody waits any more
            return
        if given is None:
            answer.set_exception(error)
        else:
            answer.set_result(given)

    def run() -> None:
        given: tuple[T] | None = None
        failure: Exception = PluginError("a plugin ended the thread in which it was loaded")
        try:
            given = (work(),)
        except Exception as error:  # noqa: BLE001 - it is raised where it is waited for
            failure = error
        except BaseException as error:  # noqa: BLE001 - no signal reaches this thread: a module raised it itself
            failure = PluginError(f"{type(error).__name__} came out of a plugin while it was loaded")
        with suppress(RuntimeError):  # the loop is closed: the connection is over
            loop.call_soon_threadsafe(settle, given, failure)

    threading.Thread(target=run, name="refold plugins", daemon=True).start()
    return (await answer)[0]
