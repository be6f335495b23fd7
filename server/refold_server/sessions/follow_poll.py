"""The one poll of this process for news of sessions that other processes write.

LMDB tells nobody of a commit, but the number of the last transaction costs a microsecond to read. One timer looks at it
for all followed sessions together, and none runs while nobody follows. A writer's death changes nothing in the store, so
the lease is looked at too. Must not know connections; it wakes whoever follows and reads no log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from refold_protocol.errors import RefoldError
from refold_protocol.ids import SessionId
from refold_storage.interface import Store

LIVELY_S: Final = 0.025
"""Seconds between two looks while anything in the store changes."""

QUIET_S: Final = 0.45
"""The same after QUIET_AFTER_S seconds without a change, and between two looks at leases: news is told within half a second,
the telling included."""

QUIET_AFTER_S: Final = 5.0


class _FollowedSession(Struct):
    session: SessionId
    wake: Callable[[], None]
    freed: Callable[[], None]
    stop: Callable[[], None]
    owned: bool
    free_at: int | None


class Following:
    """Who follows which sessions here, and the timer that looks for them. Belongs to the event loop's thread."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._followed: dict[int, _FollowedSession] = {}
        self._places = 0
        self._timer: asyncio.TimerHandle | None = None
        self._seen: int | None = None
        self._changed_at = 0.0
        self._leases_at = 0.0

    def follow(self, session: SessionId, wake: Callable[[], None], freed: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` when the store changed, and `freed` when whoever wrote the session does so no longer, however that
        came, or may have come and gone; give the function that ends it (idempotent). Neither may raise. Its writer is told
        that it is followed."""
        self._places += 1
        place = self._places
        stop = self._store.follow(session)
        self._followed[place] = _FollowedSession(session, wake, freed, stop, self._is_owned(session, before=False), None)
        if self._timer is None:
            now = asyncio.get_running_loop().time()
            self._changed_at = self._leases_at = now
            self._look()
        self._followed[place].free_at = self._seen

        def unfollow() -> None:
            if self._followed.pop(place, None) is None:
                return
            stop()
            if not self._followed and self._timer is not None:
                self._timer.cancel()
                self._timer = None

        return unfollow

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        try:
            self._tell_news(now)
        finally:  # a bug in one look must not be the end of all
            if self._followed:
                self._timer = loop.call_later(QUIET_S if now - self._changed_at > QUIET_AFTER_S else LIVELY_S, self._look)

    def _tell_news(self, now: float) -> None:
        seen = self._last_transaction()
        if seen != self._seen:
            self._seen, self._changed_at = seen, now
            for followed in tuple(self._followed.values()):
                followed.wake()
        if now - self._leases_at >= QUIET_S:
            self._leases_at = now
            self._look_at_leases()

    def _look_at_leases(self) -> None:
        for followed in tuple(self._followed.values()):
            before, followed.owned = followed.owned, self._is_owned(followed.session, before=followed.owned)
            if not followed.owned and (before or followed.free_at != self._seen):  # else nobody was there in between
                followed.free_at = self._seen
                followed.freed()

    def _last_transaction(self) -> int | None:
        try:
            return self._store.last_transaction()
        except RefoldError:  # the store is gone for good: whoever follows finds out when it reads
            return None

    def _is_owned(self, session: SessionId, *, before: bool) -> bool:
        try:
            return self._store.is_owned(session)
        except (RefoldError, OSError):  # not to be told now, for want of descriptors, say: asked again next time
            return before
