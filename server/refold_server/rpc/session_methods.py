"""Owns the handlers of `session/*`: open, read, flush, close. Turns params into calls on sessions and back into results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from refold_protocol.ids import SessionId
from refold_protocol.rpc.params import (
    Page,
    SessionCloseParams,
    SessionFlushParams,
    SessionOpenParams,
    SessionReadParams,
    first_settings,
)
from refold_protocol.rpc.results import (
    ForkOrigin,
    SessionFlushResult,
    SessionInfo,
    SessionOpenResult,
    SessionReadResult,
    SurfaceNode,
)
from refold_protocol.session.messages import Source
from refold_protocol.session.session_state import SessionState
from refold_protocol.session.transcript import TranscriptEntry
from refold_server.requests.session_log import load
from refold_server.sessions.session import Session
from refold_server.sessions.session_registry import Sessions
from refold_server.sessions.session_views import (
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

PAGE_ITEMS = 1_000
"""Items of a page where the client names no limit."""

PAGE_BYTES = 4 * 1024 * 1024
"""Bytes of a page where the client names no limit."""

Item = TypeVar("Item", SurfaceNode, TranscriptEntry)


class SessionMethods:
    """The `session/*` requests of one connection."""

    def __init__(self, sessions: Sessions, source: Source) -> None:
        self._sessions = sessions
        self._source = source

    async def open(self, params: SessionOpenParams) -> SessionOpenResult:
        """session/open."""
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
            return SessionOpenResult(handle.id, at, durable, info, *outlook_of(handle, at, folds, owned=owned))

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
        await self._sessions.close(params.session, cancel=params.cancel)


def session_info(record: SessionRecord) -> SessionInfo:
    """Give what the wire says of a record."""
    summary, parent = record.summary, record.parent
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
    )
