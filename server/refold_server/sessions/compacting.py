"""Owns the compaction of a session's history that somebody asks for, between its turns. What comes in meanwhile is queued."""

from __future__ import annotations

import anyio

from refold_protocol.errors import RefoldError, SessionBusyError
from refold_server.loop.compacting import Landed
from refold_server.loop.room import compact_now
from refold_server.sessions.session import Session

END_SECONDS = 30
"""How long the end of a compaction may take to become durable."""


async def compact_session(session: Session, wishes: str | None = None) -> Landed:
    """Compact all of a session's history; `wishes` is what a person says about the summary. Gives what stands for it, once
    that is durable.

    Raises SessionBusyError while a turn runs, and where the session is closed meanwhile; TokenMeterError, CompactionError and
    ProviderError with the history unchanged; LogError.
    """
    ledger, turns = session.ledger, session.turns
    failure: RefoldError | None = None
    with turns.hold():
        place = session.instance.seams.place(ledger.folds.work.last_turn)
        try:
            landed = await compact_now(session.instance, place, wishes, session.append)  # behind what an instance begins with
            await ledger.flush()
            return landed
        except RefoldError as error:
            failure = error
        finally:
            with anyio.CancelScope(shield=True, deadline=anyio.current_time() + END_SECONDS):
                await ledger.flush()
    raise failure or SessionBusyError("this session was closed before its history was compacted")
