"""The watch over a blocked event loop: a thread asks the loop for a sign of life and, where none comes, looks whose code runs.

Nothing can stop such code within its own process, and meanwhile nobody is answered; so it is named while it happens, once each
time. What happens to the handler when it comes back is up to `hook_runner.py`. Looks at the stack alone: it costs handlers
nothing.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from contextlib import suppress
from time import monotonic
from types import FrameType
from typing import Final

from msgspec import Struct

from refold_server.plugins.hook_runner import attempt, look
from refold_server.plugins.plugin_registry import Plugins
from refold_server.plugins.plugin_tools import FixedTool

LOOK_S: Final = 2.0
"""How often the loop is asked, in seconds."""

NO_LIMIT_S: Final = 10.0
"""What is too long where there is no limit, in seconds: at hooks whose handlers only look on."""

_log: Final = logging.getLogger(__name__)


class AtWork(Struct, frozen=True):
    """Whose code the loop's thread is in: which plugin, at which hook or in which tool, and what it may take, in seconds."""

    plugin: str
    place: str
    limit_s: float


class Watch:
    """Watches one event loop for `plugins`. `no_limit_s` is what is too long where there is no limit."""

    def __init__(self, plugins: Plugins, look_s: float = LOOK_S, no_limit_s: float = NO_LIMIT_S) -> None:
        self._owners = {row.tool.schema.name: row.plugin for row in plugins.tools}
        self._look_s = look_s
        self._no_limit_s = no_limit_s
        self._over = threading.Event()
        self._alive = True
        self._asked_at = 0.0
        self._seen: AtWork | None = None
        self._told = False

    def start(self) -> None:
        """Look again and again until `stop`, at the running loop and the thread that calls this. Call it once."""
        arguments = (asyncio.get_running_loop(), threading.get_ident())
        threading.Thread(target=self._watch, args=arguments, name="refold watch of plugins", daemon=True).start()

    def stop(self) -> None:
        """End. Idempotent."""
        self._over.set()

    def look(self, loop: asyncio.AbstractEventLoop, frame: FrameType | None) -> None:
        """Look once, at a loop and at where its thread is. Whoever is found there twice, while the loop did not answer for
        longer than he may take, is named; once is no proof, since a process that was stopped finds somebody there as well."""
        if self._alive:
            self._alive, self._asked_at, self._seen, self._told = False, monotonic(), None, False
            with suppress(RuntimeError):  # the loop was closed just now
                loop.call_soon_threadsafe(self._answer)
            return
        seen, stood = self._at_work(frame), monotonic() - self._asked_at
        if seen is not None and seen == self._seen and not self._told and stood > seen.limit_s:
            self._told = True
            _log.warning("%s", _sentence(seen, stood))
        self._seen = seen

    def _watch(self, loop: asyncio.AbstractEventLoop, thread: int) -> None:
        while not self._over.wait(self._look_s) and not loop.is_closed():
            frames = sys._current_frames()  # pyright: ignore[reportPrivateUsage] - its documented name
            self.look(loop, frames.get(thread))

    def _answer(self) -> None:
        self._alive = True

    def _at_work(self, frame: FrameType | None) -> AtWork | None:
        """Tell whose code is innermost; None where it is refold's own, also below a handler that waits for `next`."""
        while frame is not None:
            code = frame.f_code
            if code is _TOOL:
                name = frame.f_locals["self"].schema.name
                return AtWork(self._owners.get(name, "?"), f"in its tool {name}", frame.f_locals["context"].time_limit_s)
            if code is _DECIDES and frame.f_locals["limit"].is_paused:
                return None
            if code in (_DECIDES, _LOOKS_ON):
                one = frame.f_locals["one"]
                return AtWork(one.plugin, f"at {one.hook.name}", self._no_limit_s if one.limit_s is None else one.limit_s)
            frame = frame.f_back
        return None


_DECIDES: Final = attempt.__code__
_LOOKS_ON: Final = look.__code__
_TOOL: Final = FixedTool.run.__code__


def _sentence(at: AtWork, stood: float) -> str:
    what = f"The plugin {at.plugin!r} has kept the event loop to itself for {stood:.0f} s {at.place}: nobody is answered."
    return f"{what} Let it do such work in a thread, as by anyio.to_thread.run_sync; to end it, end this process."
