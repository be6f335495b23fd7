"""Handlers of `session/*`: open, read, flush, close. Turns params into calls on sessions and back into results.

Params and results of what happens to a session as a whole: it is forked, deleted, archived. Shapes only.

Handlers of `session/fork`, `session/delete`, `session/archive` and `session/rehome`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Final, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType
from msgspec.structs import replace

from refold_protocol.ids import SessionId, WriterId
from refold_protocol.session.events import LimitSettings, PermissionSettings, SessionSettings
from refold_protocol.session.messages import EpochHeader, Source
from refold_protocol.session.session_state import PendingInput, SessionState, Status
from refold_protocol.session.session_totals import UsageTotals
from refold_protocol.session.transcript import TranscriptEntry
from refold_server.requests.session_log import load
from refold_server.rpc.change_methods import CompactionParams, LimitParams, PermissionParams, compaction_settings
from refold_server.rpc.dispatch import Followed, Handler
from refold_server.rpc.method import Counting, Cursor, Seq, request_row
from refold_server.sessions.session import Session
from refold_server.sessions.session_list import ForkOrigin, inherited_totals, own_totals
from refold_server.sessions.session_registry import Sessions, fork_session
from refold_server.sessions.session_views import (
    SurfaceNode,
    listed,
    nodes_of,
    outlook_of,
    read_whole,
    reading,
    seq_at,
    surface_of,
    transcript_view,
)
from refold_storage.interface import Handle, SessionRecord


class SessionInfo(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """What is known of a session beside its events. Times are Unix epoch ms; `usage` is in tokens, `inherited`
    of a fork what its parent's events cost; `model` is `provider/model`, the last one used or set. An absent number is 0."""

    cwd: str
    created_at: int
    title: str | None = None
    model: str | None = None
    last_activity: int | None = None
    turns: int = 0
    usage: UsageTotals = UsageTotals()
    parent: ForkOrigin | None = None
    archived: bool = False
    inherited: UsageTotals | None = None


class SessionOpenResult(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """`session/open`. `tail` and `durable` are the seqs of the last accepted and the last durable event, −1 for none.
    `instance` and `writer` are there when it was opened for writing. Pending inputs are in the order of acceptance; `grants`
    are the tools that were allowed for the session."""

    session: SessionId
    tail: int
    durable: int
    info: SessionInfo
    status: Status
    pending_inputs: tuple[PendingInput, ...]
    instance: int | None = None
    writer: WriterId | None = None
    grants: tuple[str, ...] = ()


class SessionReadResult(Struct, frozen=True, gc=False):
    """`session/read`: the member that belongs to the view, in order; `next` is the `page.after` of the next page."""

    events: tuple[Raw, ...] | UnsetType = UNSET
    nodes: tuple[SurfaceNode, ...] | UnsetType = UNSET
    entries: tuple[TranscriptEntry, ...] | UnsetType = UNSET
    header: EpochHeader | UnsetType | None = UNSET
    status: Status | UnsetType = UNSET
    next: int | UnsetType = UNSET


class SessionFlushResult(Struct, frozen=True, gc=False):
    """`session/flush`: seq of the last durable event."""

    durable: int


class SessionOpenParams(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel", forbid_unknown_fields=True):
    """`session/open`: `session` opens one that exists; `cwd` (an absolute path or a `file:` URI) begins a new one, with
    the other settings as its first. A new one is always opened for writing."""

    session: SessionId | None = None
    mode: Literal["write", "read"] = "write"
    cwd: str | None = None
    title: str | None = None
    model: str | None = None
    permissions: PermissionParams | None = None
    limits: LimitParams | None = None
    compaction: CompactionParams | None = None

    def __post_init__(self) -> None:
        fresh = (self.title, self.model, self.permissions, self.limits, self.compaction)
        if (self.session is None) == (self.cwd is None):
            raise ValueError("give either `session`, to open one, or `cwd`, to begin one")
        if self.session is not None and any(value is not None for value in fresh):
            raise ValueError("title, model, permissions, limits and compaction are for a new session only")
        if self.cwd is not None and self.mode == "read":
            raise ValueError("a new session cannot be opened for reading")


class Page(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel", forbid_unknown_fields=True):
    """Which part of a view: what lies behind `after` and before `before` (seqs, both exclusive), at most `limit` items
    and `max_bytes` bytes, but at least one item where there is one."""

    after: Cursor | None = None
    before: Seq | None = None
    limit: Counting | None = None
    max_bytes: Counting | None = None


class SessionReadParams(Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """`session/read`: a view of the events 0…`at`; of all events where there is no `at`."""

    session: SessionId
    view: Literal["events", "transcript", "surface", "header", "status"]
    at: Cursor | None = None
    page: Page | None = None


class SessionCloseParams(Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """`session/close`: with `cancel`, a running turn is cancelled first."""

    session: SessionId
    cancel: bool = False


class SessionFlushParams(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel", forbid_unknown_fields=True):
    """`session/flush`: wait until the events up to `up_to` are durable; all accepted ones where it is absent."""

    session: SessionId
    up_to: Cursor | None = None


def first_settings(params: SessionOpenParams) -> SessionSettings:
    """Give the settings that a new session begins with."""
    permissions = None if params.permissions is None else PermissionSettings(params.permissions.mode)
    limits = None if params.limits is None else LimitSettings(params.limits.steps)
    return SessionSettings(params.model, None, permissions, limits, compaction_settings(params.compaction))


PAGE_ITEMS = 1_000
"""Items of a page where the client names no limit."""

PAGE_BYTES = 4 * 1024 * 1024
"""Bytes of a page where the client names no limit."""

Item = TypeVar("Item", SurfaceNode, TranscriptEntry)


Settle: TypeAlias = Callable[[SessionId], Awaitable[None]]
"""Lets what a connection follows go on with a session that was opened, closed or deleted."""


class SessionMethods:
    """What one connection does with sessions. `source` is who it is; `ask_again` shows a session's open questions."""

    def __init__(self, sessions: Sessions, source: Source, settle: Settle, ask_again: Callable[[SessionId], None]) -> None:
        self._sessions = sessions
        self._source = source
        self._settle = settle
        self._ask_again = ask_again

    def handlers(self) -> Mapping[str, Handler]:
        """Give the handlers by method name."""
        return {
            "session/open": self.open,
            "session/read": self.read,
            "session/flush": self.flush,
            "session/close": self.close,
            "session/fork": self.fork,
            "session/delete": self.delete,
            "session/archive": self.archive,
            "session/rehome": self.rehome,
        }

    async def open(self, params: SessionOpenParams) -> Followed:
        """session/open. Whoever opens a session has not seen what was asked in it before."""
        result = await self._open(params)
        if result.writer is None:
            return Followed(result, lambda: None)
        await self._settle(result.session)
        return Followed(result, lambda: self._ask_again(result.session))

    async def _open(self, params: SessionOpenParams) -> SessionOpenResult:
        if params.cwd is not None:
            settings = first_settings(params)
            return _opened(await self._sessions.create(params.cwd, settings, title=params.title, by=self._source))
        session = params.session or SessionId("")
        if params.mode == "write":
            return _opened(await self._sessions.open(session))
        return await read_whole(partial(self._open_for_reading, session))

    async def read(self, params: SessionReadParams) -> SessionReadResult:
        """session/read."""
        return await read_whole(partial(self._read, params))

    async def _open_for_reading(self, session: SessionId) -> SessionOpenResult:
        async with reading(self._sessions, session) as (handle, owned):
            at, durable, info = handle.tail, handle.durable, session_info(handle.record)
            folds = await self._folds(handle, at)
            outlook = outlook_of(handle, at, folds, owned=owned)
            return SessionOpenResult(handle.id, at, durable, info, *outlook, grants=folds.granted.tools)

    async def _read(self, params: SessionReadParams) -> SessionReadResult:
        async with reading(self._sessions, params.session) as (handle, owned):
            at = seq_at(handle, params.at)
            page = params.page or Page()
            match params.view:
                case "events":
                    return _events(handle, at, page)
                case "transcript":
                    entries, following = paged(await listed(transcript_view(handle, at, owned=owned)), page)
                    return SessionReadResult(entries=entries, next=following)
                case "surface":
                    surface = surface_of(handle, at, await self._folds(handle, at), owned=owned)
                    nodes, following = paged(nodes_of(surface), page)
                    return SessionReadResult(nodes=nodes, next=following)
                case "header":
                    return SessionReadResult(header=(await self._folds(handle, at)).request_state.header)
                case "status":
                    return SessionReadResult(status=outlook_of(handle, at, await self._folds(handle, at), owned=owned)[0])

    async def _folds(self, handle: Handle, at: int) -> SessionState:
        """Fold a log up to `at`; for the writer's own tail that is done already."""
        live = self._sessions.live(handle.id)
        if live is not None and live.session_log.handle is handle and live.session_log.handle.tail == at:
            return live.session_log.folds
        return await load(handle, at)

    async def flush(self, params: SessionFlushParams) -> SessionFlushResult:
        """session/flush."""
        handle = self._sessions.writable(params.session).session_log.handle
        up_to = None if params.up_to is None else seq_at(handle, params.up_to)
        return SessionFlushResult(await handle.flush(up_to))

    async def close(self, params: SessionCloseParams) -> None:
        """session/close."""
        try:
            await self._sessions.close(params.session, cancel=params.cancel)
        finally:  # also when the last flush failed
            await self._settle(params.session)

    async def fork(self, params: SessionForkParams) -> SessionForkResult:
        """session/fork."""
        made = await fork_session(self._sessions, params.session, params.at, params.title, self._source, params.cwd)
        return SessionForkResult(made.session, made.tail)

    async def delete(self, params: SessionDeleteParams) -> None:
        """session/delete."""
        try:
            await self._sessions.delete(params.session)
        finally:  # also when it was closed and could not be deleted then
            await self._settle(params.session)

    async def archive(self, params: SessionArchiveParams) -> None:
        """session/archive."""
        await self._sessions.store.set_archived(params.session, params.archived)

    async def rehome(self, params: SessionRehomeParams) -> SessionRehomeResult:
        """session/rehome."""
        try:
            record = await self._sessions.rehome(params.session, params.cwd)
        finally:  # also when it was closed and could not be moved then
            await self._settle(params.session)
        return SessionRehomeResult(record.cwd)


def session_info(record: SessionRecord) -> SessionInfo:
    """Give what the wire says of a record."""
    summary, parent = own_totals(record), record.parent
    return SessionInfo(
        record.cwd,
        record.created_at,
        summary.title,
        summary.model,
        summary.last_activity,
        summary.turns,
        summary.usage,
        None if parent is None else ForkOrigin(parent.session, parent.at, parent.digest),
        record.archived,
        inherited_totals(summary),
    )


def paged(items: Iterable[Item], page: Page) -> tuple[tuple[Item, ...], Any]:
    """Give the items of a page, and the `after` of the next one (UNSET on the last).

    A page is cut by place: `after` is the seq of the item before it, wherever that stands, because the seqs of surface
    nodes need not ascend. An `after` that no item has begins behind the last item with a smaller seq.
    """
    limit, room = page.limit or PAGE_ITEMS, page.max_bytes or PAGE_BYTES
    chosen: list[Item] = []
    for item in _behind(list(items), page.after):
        if page.before is not None and item.seq >= page.before:
            break
        room -= len(msgspec.json.encode(item))
        if chosen and (len(chosen) == limit or room < 0):
            return tuple(chosen), chosen[-1].seq
        chosen.append(item)
    return tuple(chosen), msgspec.UNSET


def _behind(items: Sequence[Item], after: int | None) -> Sequence[Item]:
    if after is None:
        return items
    for place, item in enumerate(items):
        if item.seq == after:
            return items[place + 1 :]
    smaller = [place for place, item in enumerate(items) if item.seq < after]
    return items[smaller[-1] + 1 :] if smaller else items


def _events(handle: Handle, at: int, page: Page) -> SessionReadResult:
    first = 0 if page.after is None else page.after + 1
    last = at if page.before is None else min(at, page.before - 1)
    if first > last:
        return SessionReadResult(events=())
    wanted = min(last, first + (page.limit or PAGE_ITEMS) - 1)
    lines = handle.lines(first, wanted, max_bytes=page.max_bytes or PAGE_BYTES)
    end = first + len(lines) - 1
    return SessionReadResult(events=tuple(Raw(line) for line in lines), next=end if end < last else msgspec.UNSET)


def _opened(session: Session) -> SessionOpenResult:
    handle = session.session_log.handle
    return SessionOpenResult(
        session.id,
        handle.tail,
        handle.durable,
        session_info(handle.record),
        replace(session.status(), unmetered=session.instance.model.unmetered() is not None),
        session.session_log.folds.pending,
        session.instance.number,
        handle.writer,
        session.session_log.folds.granted.tools,
    )


class SessionForkParams(Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """`session/fork`: the new session begins with the events 0…`at` of `session`; with all of them where there is no `at`.
    Of a session that another process writes, what is on disk can be forked. `title` is the new session's, `cwd` its folder (an
    absolute path or a `file:` URI) where that is not its parent's."""

    session: SessionId
    at: Seq | None = None
    title: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    cwd: str | None = None


class SessionForkResult(Struct, frozen=True, gc=False):
    """`session/fork`: the new session, which nobody has open, and the seq of its last event."""

    session: SessionId
    tail: int


class SessionDeleteParams(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """`session/delete`: for good. Forks of the session keep what they inherited."""

    session: SessionId


class SessionArchiveParams(Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """`session/archive`: whether the session is left out of lists that do not ask for archived ones."""

    session: SessionId
    archived: bool = True


class SessionRehomeParams(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """`session/rehome`: the session goes on in the folder `cwd` (an absolute path or a `file:` URI), because its own was moved
    or renamed. Refused while a turn runs; a session that is open stays open, and whoever follows it subscribes anew."""

    session: SessionId
    cwd: str


class SessionRehomeResult(Struct, frozen=True, gc=False):
    """`session/rehome`: the folder of the session from now on."""

    cwd: str


METHODS: Final = (
    request_row("session/open", SessionOpenParams, SessionOpenResult, "Open a session, or begin one."),
    request_row("session/read", SessionReadParams, SessionReadResult, "Read a view of a session's log."),
    request_row("session/flush", SessionFlushParams, SessionFlushResult, "Wait until events are durable."),
    request_row("session/close", SessionCloseParams, None, "Give a session back; refused while a turn runs."),
    request_row("session/fork", SessionForkParams, SessionForkResult, "Begin a session with another's events."),
    request_row("session/delete", SessionDeleteParams, None, "Delete a session for good."),
    request_row("session/archive", SessionArchiveParams, None, "Leave a session out of lists, or bring it back."),
    request_row("session/rehome", SessionRehomeParams, SessionRehomeResult, "Let a session go on in another folder."),
)
"""The methods of this family."""
