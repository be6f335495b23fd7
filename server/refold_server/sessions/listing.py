"""Owns the list of sessions: pages of the catalogue, filtered, each row with the status that can be known from here.

Reads the catalogue alone, but where a text is searched in prompts. Never folds a log.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from refold_protocol.rpc.listing import SessionListResult, SessionRow
from refold_protocol.rpc.params import SessionListParams
from refold_protocol.rpc.results import ForkOrigin
from refold_server.sessions.prompts import folded
from refold_server.sessions.registry import Sessions, named_path
from refold_storage.interface import RecentCursor, SessionRecord

LOOKED_AT: Final = 10_000
"""Rows of the catalogue that one page looks through; a page of a rare filter may be short and still have a next one."""

SEARCHED_EVENTS: Final = 100_000
"""Events of logs that one page reads for prompts, a tenth of a second or so; it ends behind the session with which it got
there, and has a next one."""

MAX_CURSOR: Final = (1 << 64) - 1
"""The largest number of a cursor."""

CHUNK: Final = 200
"""Rows that are read from the catalogue at a time."""


async def page_of_sessions(sessions: Sessions, wanted: SessionListParams, before: RecentCursor | None) -> SessionListResult:
    """Give a page of the list. The folder `cwd` may be gone by now; its sessions are not. Raises
    ConfigError for a `cwd` that is no absolute path."""
    sought = _Sought(sessions, wanted)
    rows: list[SessionRow] = []
    last = before
    for looked, (cursor, record) in enumerate(_records(sessions, before)):
        if len(rows) == wanted.limit or looked == LOOKED_AT or sought.read >= SEARCHED_EVENTS:
            return SessionListResult(tuple(rows), None if last is None else write_cursor(last))
        last = cursor
        if await sought.fits(record):
            rows.append(session_row(sessions, record))
    return SessionListResult(tuple(rows))


def session_row(sessions: Sessions, record: SessionRecord) -> SessionRow:
    """Give the row of a session."""
    summary = record.summary
    return SessionRow(
        record.id,
        record.cwd,
        record.created_at,
        summary.last_activity or record.created_at,
        record.tail,
        summary.turns,
        _status(sessions, record),
        summary.title,
        summary.model,
        summary.usage,
        origin_of(record),
        record.archived,
    )


def origin_of(record: SessionRecord) -> ForkOrigin | None:
    """Give where a session was forked from; None for one that was not."""
    parent = record.parent
    return None if parent is None else ForkOrigin(parent.session, parent.at, parent.digest)


def write_cursor(cursor: RecentCursor) -> str:
    """Give a cursor as text."""
    return f"{cursor[0]}.{cursor[1]}"


def read_cursor(text: str) -> RecentCursor:
    """Read a cursor. Raises ValueError for a text that `write_cursor` does not write."""
    activity, dot, number = text.partition(".")
    if not (dot and activity.isascii() and activity.isdigit() and number.isascii() and number.isdigit()):
        raise ValueError(text)
    cursor = int(activity), int(number)
    if max(cursor) > MAX_CURSOR:
        raise ValueError(text)
    return cursor


def _records(sessions: Sessions, before: RecentCursor | None) -> Iterator[tuple[RecentCursor, SessionRecord]]:
    while found := sessions.store.recent(limit=CHUNK, before=before):
        yield from found
        before = found[-1][0]


class _Sought:
    """What a page looks for; `read` counts the events of logs that it read for that."""

    def __init__(self, sessions: Sessions, wanted: SessionListParams) -> None:
        self.read = 0
        self._prompts = sessions.prompts
        self._archived = wanted.archived
        self._folder = None if wanted.cwd is None else str(named_path(wanted.cwd))
        self._text = "" if wanted.text is None else folded(wanted.text)

    async def fits(self, record: SessionRecord) -> bool:
        if record.archived and not self._archived:
            return False
        if self._folder is not None and record.cwd != self._folder:
            return False
        if self._text in folded(record.summary.title or ""):
            return True
        self.read += self._prompts.cost(record)
        return await self._prompts.hold(record, self._text)


def _status(sessions: Sessions, record: SessionRecord) -> str:
    """A session that this process writes tells its status itself; one that another process writes is taken to run; what
    nobody writes is idle, whatever its last event was: a crash is closed by its next writer."""
    live = sessions.live(record.id)
    if live is not None:
        return live.status().status
    return "running" if sessions.store.is_owned(record.id) else "idle"
