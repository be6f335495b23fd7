"""Owns the making of forks from a session of this process or of any other: how far it can be forked, and the fork's title.

The fork's seed is closed by whoever opens it for writing first, as every log is; nothing of that is done here.
"""

from __future__ import annotations

from msgspec import Struct

from refold_protocol.errors import SeqRangeError
from refold_protocol.ids import SessionId
from refold_protocol.session.messages import Source
from refold_server.clock import epoch_ms, new_session_id
from refold_server.sessions.registry import Sessions
from refold_storage.interface import NewSession
from refold_storage.session_record import SessionRecord


class Forked(Struct, frozen=True, gc=False):
    """A fork that is on disk, and the seq of its last event."""

    session: SessionId
    tail: int


async def fork_session(
    sessions: Sessions, parent: SessionId, at: int | None = None, title: str | None = None, by: Source | None = None
) -> Forked:
    """Make a session of the events 0…`at` of `parent`, of all of them where `at` is None.

    A parent that this process writes is flushed up to `at` first; any other can be forked up to what is on disk. A `title`
    is an event of the fork's own, so it is opened for that and closed again; where that fails, the fork is there without.
    Raises SessionNotFoundError, SeqRangeError, SessionCorruptionError, LogError.
    """
    record, cut = await _durable(sessions, parent, at)
    made = await sessions.store.fork(parent, cut, NewSession(new_session_id(), record.cwd, epoch_ms()))
    if title is None:
        return Forked(made.id, made.tail)
    live = await sessions.open(made.id)
    try:
        seq = await live.rename(title, by or Source("client"))
    finally:  # nobody asked for it to be open, whatever became of its title
        await sessions.close(made.id)
    return Forked(made.id, seq)


async def _durable(sessions: Sessions, parent: SessionId, at: int | None) -> tuple[SessionRecord, int]:
    """Give the parent's record and the seq behind which it is cut, which is on disk."""
    live = sessions.live(parent)
    if live is None or live.closed:
        record = sessions.store.get(parent)
        return record, record.tail if at is None else at
    handle = live.ledger.handle
    if handle.tail < 0:
        raise SeqRangeError(f"session {parent} cannot be forked: there is nothing in it yet", tail=handle.tail)
    cut = handle.tail if at is None else at
    if not 0 <= cut <= handle.tail:
        raise SeqRangeError(
            f"session {parent} cannot be forked at {cut}: it ends at {handle.tail}", first=cut, tail=handle.tail
        )
    await handle.flush(cut)
    return handle.record, cut
