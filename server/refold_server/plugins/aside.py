"""Owns the threads in which plugins are imported: whoever waits can be heard meanwhile, and an import that never ends keeps
neither a process alive nor others waiting. No thread can be stopped: one that takes too long stays behind. Must not know
what plugins are."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar

from refold_protocol.errors import PluginError

T = TypeVar("T")


class Aside:
    """Runs work in threads, one for each piece, and remembers what was left behind. For one event loop."""

    def __init__(self) -> None:
        self._late: Final[dict[str, threading.Thread]] = {}

    async def run(self, name: str, work: Callable[[], T], limit_s: float) -> T:
        """Do work in a thread of its own and give what it gives. Raises what it raises, and PluginError where that is neither
        an error nor refold's own doing, as `sys.exit()` or a cancellation out of a module.

        Raises TimeoutError when it takes longer than `limit_s` seconds, and at once while earlier work of that name that did
        still runs. Cancelled, it leaves the thread alone.
        """
        earlier = self._late.pop(name, None)
        if earlier is not None and earlier.is_alive():
            self._late[name] = earlier
            raise TimeoutError
        thread, answer = _begun(work)
        try:
            async with asyncio.timeout(limit_s):
                return (await answer)[0]
        except TimeoutError:
            if answer.cancelled():  # else the work's own
                self._late[name] = thread
            raise


def _begun(work: Callable[[], T]) -> tuple[threading.Thread, asyncio.Future[tuple[T]]]:
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

    thread = threading.Thread(target=run, name="refold plugins", daemon=True)
    thread.start()
    return thread, answer
