"""The sessions that this process has open, by id: opened, resumed, closed, forked and compacted on request.

A session can be forked from one of this process or of any other. The fork's seed is closed by whoever opens it for writing
first, as every log is. What comes in while a history is compacted is queued. Knows nothing of connections.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit
from weakref import WeakValueDictionary

import anyio
from msgspec import Struct

from refold_protocol.errors import (
    ConfigError,
    InvalidEventError,
    RefoldError,
    SeqRangeError,
    SessionBusyError,
    SessionNotFoundError,
    SessionReadOnlyError,
)
from refold_protocol.ids import SessionId
from refold_protocol.session.events import AbortCause, ClientInfo, Draft, Event, SessionSettings, SessionTitle
from refold_protocol.session.messages import Source
from refold_protocol.session.session_state import NO_SETTINGS
from refold_server.clock import epoch_ms, new_session_id
from refold_server.compaction.compaction_run import CompactionOutcome
from refold_server.compaction.compaction_trigger import compact_now
from refold_server.loop.instance import Host, Instance
from refold_server.plugins.plugin_registry import NO_PLUGINS, Plugins
from refold_server.plugins.session_hooks import SessionHooks
from refold_server.prefix.contributors import SYSTEM_TEXT
from refold_server.requests.session_log import SessionLog
from refold_server.sessions.follow_poll import Following
from refold_server.sessions.prompt_search import Prompts
from refold_server.sessions.session import Session
from refold_server.sessions.session_settings import check_settings
from refold_server.sessions.turn_queue import Spawn
from refold_storage.interface import Handle, NewSession, SessionRecord, Store


class Sessions:
    """The open sessions of one process over one store. `opened` is called with each session that was opened for writing."""

    def __init__(
        self,
        store: Store,
        host_for: Callable[[str], Host],
        spawn: Spawn,
        client: ClientInfo | None = None,
        opened: Callable[[Session], None] | None = None,
        plugins: Plugins = NO_PLUGINS,
    ) -> None:
        self.store = store
        self.following: Final = Following(store)
        self.prompts: Final = Prompts(store)
        self._host_for = host_for
        self._spawn = spawn
        self._client = client
        self._opened = opened
        self._plugins = plugins
        self._live: dict[SessionId, Session] = {}
        self._locks: WeakValueDictionary[SessionId, anyio.Lock] = WeakValueDictionary()
        plugins.bind(self._record)

    def __iter__(self) -> Iterator[Session]:
        return iter(tuple(self._live.values()))

    def live(self, session: SessionId) -> Session | None:
        """Give a session that is open for writing here, else None."""
        return self._live.get(session)

    def writable(self, session: SessionId) -> Session:
        """Give a session that is open for writing here. Raises SessionReadOnlyError where it is not, SessionNotFoundError where
        there is none."""
        live = self._live.get(session)
        if live is None:
            self.store.get(session)
            message = f"session {session} is not open for writing here; call session/open first"
            raise SessionReadOnlyError(message, session=session)
        return live

    def hooks(self, session: SessionId, cwd: str) -> SessionHooks:
        """Give hooks of their own for a session in the folder `cwd`."""
        return SessionHooks(self._plugins, session, cwd)

    async def create(
        self, cwd: str, settings: SessionSettings = NO_SETTINGS, *, title: str | None = None, by: Source | None = None
    ) -> Session:
        """Create a session in the folder `cwd` (an absolute path or a file: URI). Nothing is stored until it gets work.
        `by` is who gives it its title.

        A wrong model in `settings` raises ProviderError `model.unconfigured` here, not in the first turn; so does ConfigError
        what does not go with its window.
        """
        path = folder_path(cwd)
        handle = await self.store.create(NewSession(new_session_id(), str(path), epoch_ms()))
        first: list[Draft] = [] if settings == NO_SETTINGS else [Draft(settings)]
        if title is not None:
            first.append(Draft(SessionTitle(title, by or Source("client"))))
        return await self._adopt(handle, tuple(first), settings)

    async def open(self, session: SessionId) -> Session:
        """Open a session for writing; one that is open here already is given again. Appends closers where its last turn
        was interrupted, and the instance's start where a fork is opened first, and gives it only after they are durable.
        Raises SessionError and LogError."""
        async with self._alone(session):
            live = self._live.get(session)
            return live or await self._adopt(await self.store.open(session, "write"))

    async def close(self, session: SessionId, *, cancel: bool = False) -> None:
        """Close a session. Raises SessionReadOnlyError, SessionNotFoundError, SessionBusyError, LogError."""
        async with self._alone(session):
            live = self.writable(session)
            try:
                await live.close(cancel=cancel)
            finally:
                if live.closed:  # also when its last flush failed: the lease is free then
                    self._live.pop(session, None)

    async def delete(self, session: SessionId) -> None:
        """Delete a session for good, one that is open here too. Raises SessionNotFoundError, SessionBusyError while a turn
        runs here, SessionAlreadyOwnedError while another process has it open for writing, LogError."""
        async with self._alone(session):
            live = self._live.get(session)
            stored = live is None or live.session_log.handle.tail >= 0
            if live is not None:
                try:
                    await live.close()
                finally:
                    if live.closed:
                        self._live.pop(session, None)
            if stored:
                await self.store.delete(session)

    async def rehome(self, session: SessionId, cwd: str) -> SessionRecord:
        """Give a session another folder (an absolute path or a file: URI), in which it goes on from here; one that is open here
        stays open. Raises ConfigError for a folder that is not there, SessionNotFoundError, SessionBusyError while a turn runs
        here, SessionAlreadyOwnedError while another process has it open for writing, LogError."""
        path = str(folder_path(cwd))
        async with self._alone(session):
            live = self._live.get(session)
            if live is None:
                return await self.store.rehome(session, path)
            if live.session_log.handle.tail < 0:
                raise SessionBusyError(f"session {session} has nothing in it yet; begin one in {path}")
            try:
                await live.close()
            finally:
                if live.closed:
                    self._live.pop(session, None)
            try:
                return await self.store.rehome(session, path)
            finally:  # whoever had it open has it open again, wherever it lives now
                await self._adopt(await self.store.open(session, "write"))

    async def close_all(self, cause: AbortCause, *, step_seconds: float = 0) -> list[RefoldError]:
        """End every turn, all at the same time, flush and close every session; give what went wrong."""
        troubles: list[RefoldError] = []

        async def end(session: Session) -> None:
            try:
                await session.turns.finish(cause, step_seconds=step_seconds)
                await session.close()
            except RefoldError as error:  # the others must be closed all the same
                troubles.append(error)
            self._live.pop(session.id, None)

        async with anyio.create_task_group() as tasks:
            for session in self:
                tasks.start_soon(end, session)
        return troubles

    def _record(self, session: SessionId, draft: Draft) -> Event:
        """Append an event of a plugin. Raises SessionNotFoundError, InvalidEventError, LogError."""
        live = self._live.get(session)
        if live is None:
            raise SessionNotFoundError(f"session {session} is not open for writing here", session=session)
        if any(other.instance.hooks.observing for other in self):
            raise InvalidEventError(f"{draft.type}: an append from inside an observer")
        return live.append(draft)[-1]

    def _alone(self, session: SessionId) -> anyio.Lock:
        """Give the lock under which a session is opened and closed: two requests that overlap must not meet halfway."""
        lock = self._locks.get(session)
        if lock is None:
            lock = self._locks[session] = anyio.Lock()
        return lock

    async def _adopt(self, handle: Handle, first: tuple[Draft, ...] = (), settings: SessionSettings = NO_SETTINGS) -> Session:
        try:
            session_log = await SessionLog.opened(handle)
            await session_log.repair()
            host = self._host_for(handle.record.cwd)
            if settings.model is not None or settings.compaction is not None:
                check_settings(host, settings)
            instance = Instance(session_log, host, self.hooks(handle.id, handle.record.cwd), SYSTEM_TEXT, self._client)
            if session_log.inherited:  # from here on nothing that its parent left undone is waited for or counts
                session_log.append(*instance.opening())
                await session_log.flush()
        except BaseException:
            await handle.close()
            raise
        session = Session(session_log, instance, self._spawn, first)
        self._live[handle.id] = session
        if self._opened is not None:
            self._opened(session)
        return session


def is_gone(cwd: str) -> bool:
    """Tell whether a session's folder is not there any more; one that may not be looked at is there."""
    try:
        return not stat.S_ISDIR(os.stat(cwd).st_mode)  # noqa: PTH116 - a log may name any text
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return True
    except OSError:  # forbidden, or on a disk that does not answer
        return False


def same_folder(one: str, other: str) -> bool:
    """Tell whether two paths name one folder, however they are spelt: by links, by another mount, in other letters where the
    file system takes those for the same. Of folders that are gone the paths decide."""
    if os.path.realpath(one) == os.path.realpath(other):
        return True
    try:
        return Path(one).samefile(other)
    except (OSError, ValueError):  # one of them is not there, or may not be looked at
        return False


def folder_path(cwd: str) -> Path:
    """Give the folder that an absolute path or a `file:` URI names. Raises ConfigError when it is not one."""
    path = named_path(cwd)
    if not path.is_dir():
        raise ConfigError("cwd", f"there is no folder {path}")
    return path


def named_path(cwd: str) -> Path:
    """Give the path that an absolute path or a `file:` URI names, whatever is there. Raises ConfigError for another text."""
    text = cwd
    if cwd.startswith("file:"):
        parts = urlsplit(cwd)
        if parts.netloc not in ("", "localhost"):
            raise ConfigError("cwd", f"{cwd} names a folder on another machine")
        text = unquote(parts.path)
    path = Path(text)
    if "\0" in text or not path.is_absolute():
        raise ConfigError("cwd", f"{cwd!r} is not an absolute path or a file: URI")
    return path


class Forked(Struct, frozen=True, gc=False):
    """A fork that is on disk, and the seq of its last event."""

    session: SessionId
    tail: int


async def fork_session(
    sessions: Sessions,
    parent: SessionId,
    at: int | None = None,
    title: str | None = None,
    by: Source | None = None,
    cwd: str | None = None,
) -> Forked:
    """Make a session of the events 0…`at` of `parent`, of all of them where `at` is None, in its folder or in `cwd`.

    A parent that this process writes is flushed up to `at` first; any other can be forked up to what is on disk. A `title`
    is an event of the fork's own, so it is opened for that and closed again; where that fails, the fork is there without.
    Raises ConfigError for a `cwd` that is no folder, SessionNotFoundError, SeqRangeError, SessionCorruptionError, LogError.
    """
    folder = None if cwd is None else str(folder_path(cwd))
    record, cut = await _durable(sessions, parent, at)
    made = await sessions.store.fork(parent, cut, NewSession(new_session_id(), folder or record.cwd, epoch_ms()))
    if title is None:
        return Forked(made.id, made.tail)
    live = await sessions.open(made.id)
    try:
        seq = await live.rename(title, by or Source("client"))
    finally:  # nobody asked for it to be open, whether or not its title was recorded
        await sessions.close(made.id)
    return Forked(made.id, seq)


async def _durable(sessions: Sessions, parent: SessionId, at: int | None) -> tuple[SessionRecord, int]:
    """Give the parent's record and the seq after which it is cut, which is on disk."""
    live = sessions.live(parent)
    if live is None or live.closed:
        record = sessions.store.get(parent)
        return record, record.tail if at is None else at
    handle = live.session_log.handle
    if handle.tail < 0:
        raise SeqRangeError(f"session {parent} cannot be forked: there is nothing in it yet", tail=handle.tail)
    cut = handle.tail if at is None else at
    if not 0 <= cut <= handle.tail:
        raise SeqRangeError(
            f"session {parent} cannot be forked at {cut}: it ends at {handle.tail}", first=cut, tail=handle.tail
        )
    await handle.flush(cut)
    return handle.record, cut


END_SECONDS = 30
"""How long the end of a compaction may take to become durable."""


async def compact_session(session: Session, wishes: str | None = None) -> CompactionOutcome:
    """Compact all of a session's history; `wishes` is what a person says about the summary. Gives what stands for it, once
    that is durable.

    Raises SessionBusyError while a turn runs, and where the session is closed meanwhile; TokenMeterError, CompactionError and
    ProviderError with the history unchanged; LogError.
    """
    session_log, turns = session.session_log, session.turns
    failure: RefoldError | None = None
    with turns.hold():
        model, hooks = session.instance.model, session.instance.hooks
        place = hooks.place(session_log.folds.work.last_turn)
        try:
            landed = await compact_now(session_log, model, hooks, place, wishes, session.append)  # after the instance's start
            await session_log.flush()
            return landed
        except RefoldError as error:
            failure = error
        finally:
            with anyio.CancelScope(shield=True, deadline=anyio.current_time() + END_SECONDS):
                await session_log.flush()
    raise failure or SessionBusyError("this session was closed before its history was compacted")
