"""The list of sessions: pages of the catalogue, filtered, each row with the status that can be known from here.

Reads the catalogue alone, but where a text is searched in prompts, and for a fork that nobody opened yet: the catalogue
knows of it what its parent came to. Never folds a log.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final

from msgspec import Meta, Struct
from msgspec.structs import replace

from refold_protocol.errors import RefoldError
from refold_protocol.ids import SessionId
from refold_protocol.session.session_totals import SessionTotals, UsageTotals, as_fork
from refold_server.sessions.prompt_search import folded
from refold_server.sessions.session_registry import Sessions, is_gone, named_path, same_folder
from refold_storage.catalog import counted_summary
from refold_storage.interface import RecentCursor, SessionRecord


class ForkOrigin(Struct, frozen=True, gc=False):
    """The parent of a fork, the last inherited seq, and the digest of that event in hex."""

    session: SessionId
    at: int
    digest: str


class SessionRow(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """A session in a list. `status` is a word of Status; `usage` is in tokens, `inherited` of a fork what its parent's events
    cost, which `usage` does not count again."""

    session: SessionId
    cwd: str
    created_at: int
    last_activity: int
    tail: int
    turns: int
    status: str
    title: str | None = None
    model: str | None = None
    usage: UsageTotals = UsageTotals()
    parent: ForkOrigin | None = None
    archived: bool = False
    inherited: UsageTotals | None = None


class SessionListResult(Struct, frozen=True, gc=False, omit_defaults=True):
    """`session/list`: `next` is the cursor of the next page, absent on the last."""

    sessions: tuple[SessionRow, ...]
    next: str | None = None


class SessionListParams(Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """`session/list`: the most recently active first, `limit` at most, going on behind `cursor` (the `next` of the page
    before). `cwd` keeps the sessions of one folder, `moved` those whose folder is not there any more, `text` those in whose
    title or prompts it stands, whatever its case. A page may be short, even empty, and have a next one: it looks at so many
    sessions, and reads so much of their logs, only."""

    limit: Annotated[int, Meta(ge=1, le=1_000)]
    cwd: str | None = None
    text: str | None = None
    archived: bool = False
    cursor: str | None = None
    moved: bool = False


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
        if (found := await sought.found(record)) is not None:
            rows.append(session_row(sessions, found))
    return SessionListResult(tuple(rows))


def session_row(sessions: Sessions, record: SessionRecord) -> SessionRow:
    """Give the row of a session."""
    summary = own_totals(record)
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
        inherited_totals(summary),
    )


def own_totals(record: SessionRecord) -> SessionTotals:
    """Give the totals of a session; of a fork that nobody opened yet what it cost is its parent's alone."""
    parent = record.parent
    return as_fork(record.summary) if parent is not None and parent.at == record.tail else record.summary


def inherited_totals(summary: SessionTotals) -> UsageTotals | None:
    """Give what the events cost that a fork began with; None where that is nothing."""
    return None if summary.inherited == UsageTotals() else summary.inherited


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
        self._store = sessions.store
        self._prompts = sessions.prompts
        self._archived = wanted.archived
        self._folder = None if wanted.cwd is None else str(named_path(wanted.cwd))
        self._moved = wanted.moved
        self._named: dict[str, bool] = {}
        self._text = "" if wanted.text is None else folded(wanted.text)

    async def found(self, record: SessionRecord) -> SessionRecord | None:
        """Give the record of a session that is looked for, as its own log has it; None for another one."""
        if record.archived and not self._archived:
            return None
        if self._folder is not None and not self._is_named(record.cwd):
            return None
        if self._moved and not is_gone(record.cwd):
            return None
        record = await self._counted(record)
        if self._text in folded(record.summary.title or ""):
            return record
        self.read += self._prompts.cost(record)
        return record if await self._prompts.hold(record, self._text) else None

    def _is_named(self, cwd: str) -> bool:
        """Tell whether a session's folder is the one that is looked for, however either is spelt."""
        if cwd not in self._named:
            self._named[cwd] = same_folder(cwd, self._folder or "")
        return self._named[cwd]

    async def _counted(self, record: SessionRecord) -> SessionRecord:
        if record.parent is None or record.parent.at != record.tail:
            return record
        self.read += record.tail + 1
        try:
            handle = await self._store.open(record.id, "read")
            try:
                summary = await counted_summary(
                    lambda first, last, size: handle.lines(first, last, max_bytes=size), record.tail
                )
            finally:
                await handle.close()
        except RefoldError:  # whoever opens it is told; the list goes on with what is known
            return record
        return replace(record, summary=summary)


def _status(sessions: Sessions, record: SessionRecord) -> str:
    """A session that this process writes tells its status itself; one that another process writes is taken to run; what
    nobody writes is idle, whatever its last event was: a crash is closed by its next writer."""
    live = sessions.live(record.id)
    if live is not None:
        return live.status().status
    return "running" if sessions.store.is_owned(record.id) else "idle"
