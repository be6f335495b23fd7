"""Owns the commands on a selection: from their argument to a turn in a session, and from its last reply to an edit.

A command is answered when its prompt is on disk, like `turn/start`; what comes of it is told when the turn is over. Ends with
the connection: a turn goes on or ends by the session's rules, but nothing is edited any more. Must not know pygls.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, Struct

from refold_protocol.errors import RefoldError
from refold_protocol.rpc.commands import CommandOutcome, CommandResult, EditOutcome, SelectionParams
from refold_protocol.rpc.documents import ShowMessageParams
from refold_protocol.rpc.errors import WireError, bad_param, invalid_params
from refold_protocol.rpc.language import EXPLAIN
from refold_protocol.session.events import AssistantMessage, Event, TurnEnd
from refold_protocol.session.messages import Source, text_of
from refold_server.lsp.documents import document_named, folder_of, path_of_uri
from refold_server.lsp.edits import Editor, EditRefused, apply_text_edit
from refold_server.lsp.replacement import change_of, replacement_in
from refold_server.lsp.selection import Selection, prompt, resolve, shown_path
from refold_server.sessions.registry import Sessions
from refold_server.sessions.session import Session, Spawn

MAX_MESSAGE: Final = 4_000
"""Characters of a reply that a message shows."""

logger = logging.getLogger(__name__)


class Workbench(Struct, frozen=True):
    """What commands work with. `folders` gives the workspace's folders, `sessions` opens the store with the first call."""

    editor: Editor
    folders: Callable[[], Awaitable[tuple[str, ...]]]
    sessions: Callable[[], Awaitable[Sessions]]
    source: Source
    notify: Callable[[str, object], None]
    spawn: Spawn


class _Arguments(Struct, frozen=True):
    arguments: tuple[SelectionParams]


class Commands:
    """The commands of one connection."""

    def __init__(self, bench: Workbench) -> None:
        self._bench = bench
        self._closed = False

    def close(self) -> None:
        """Edit nothing any more: whoever asked for it is gone."""
        self._closed = True

    async def run(self, command: str, arguments: tuple[Any, ...]) -> CommandResult:
        """Run one command. Raises WireError for arguments that are not one, and the errors of `session/open` and
        `turn/start`."""
        params = read_argument(command, arguments)
        path = path_of_uri(params.uri)
        if path is None:
            raise WireError(bad_param(command, "$.arguments[0].uri", f"{params.uri} names no file"))
        selection = await self._resolved(command, params)
        session = await self._session(command, params, selection, path)
        selection = await self._resolved(command, params)  # the text as it is now, when the prompt is accepted
        shown = shown_path(path, session.ledger.handle.record.cwd)
        given, turn, seq = await session.start(prompt(command, params, selection, shown), self._bench.source)
        started = CommandResult(session.id, given.input, turn, seq)
        if params.wait:
            return msgspec.structs.replace(started, outcome=await self._outcome(command, session, started, selection, path))
        self._bench.spawn(lambda: self._told_later(command, session, started, selection, path))
        return started

    async def _resolved(self, command: str, params: SelectionParams) -> Selection:
        editor = self._bench.editor
        return resolve(command, params, document_named(await editor.documents(), params.uri), editor.encoding)

    async def _session(self, command: str, params: SelectionParams, selection: Selection, path: str) -> Session:
        sessions = await self._bench.sessions()
        if params.session is not None:
            return await sessions.open(params.session)
        folder = folder_of(path, await self._bench.folders()) or path.rpartition("/")[0] or "/"
        word = command.rpartition(".")[2].capitalize()
        return await sessions.create(folder, title=f"{word} {shown_path(path, folder)}:{selection.lines}")

    async def _outcome(
        self, command: str, session: Session, started: CommandResult, selection: Selection, path: str
    ) -> CommandOutcome:
        """Wait for the turn's end, and make the edit that its last reply asks for. Raises RefoldError."""
        end = await session.turns.wait(started.turn)
        text = _last_reply(session, started.seq, end)
        reason = Raw(msgspec.json.encode(end.data.reason)) if isinstance(end.data, TurnEnd) else Raw(b"null")
        if command == EXPLAIN:
            return CommandOutcome(reason, text)
        try:
            return CommandOutcome(reason, text, edit=await self._edited(end, text, selection, path))
        except EditRefused as refusal:
            return CommandOutcome(reason, text, problem=f"Nothing was changed: {refusal}.")

    async def _edited(self, end: Event, text: str, selection: Selection, path: str) -> EditOutcome:
        if not isinstance(end.data, TurnEnd) or end.data.reason.kind != "completed":
            raise EditRefused(f"the turn was not completed{_why(end)}")
        if self._closed:
            raise EditRefused("the connection to the editor is over")
        change = change_of(replacement_in(text), selection.text, selection.start)
        return await apply_text_edit(self._bench.editor, path, change)

    async def _told_later(
        self, command: str, session: Session, started: CommandResult, selection: Selection, path: str
    ) -> None:
        try:
            message = _message(await self._outcome(command, session, started, selection, path))
        except RefoldError as error:  # the turn's end could not be recorded: the person is told here, others by the log
            message = ShowMessageParams(1, f"refold: {error.message}")
        except Exception:
            logger.exception("%s in session %s", command, session.id)
            message = ShowMessageParams(1, "refold: a fault of its own; its log has the details")
        self._bench.notify("window/showMessage", message)


def read_argument(command: str, arguments: tuple[Any, ...]) -> SelectionParams:
    """Read a command's argument. Raises WireError naming the path of what is wrong."""
    try:
        return msgspec.convert({"arguments": arguments}, _Arguments).arguments[0]
    except (msgspec.ValidationError, RecursionError) as error:
        raise WireError(invalid_params(command, error)) from None


def _last_reply(session: Session, after: int, end: Event) -> str:
    text = ""
    for event in session.ledger.handle.read(after, end.seq):
        if isinstance(event.data, AssistantMessage):
            text = text_of(event.data.content)
    return text


def _why(end: Event) -> str:
    reason = end.data.reason if isinstance(end.data, TurnEnd) else None
    if reason is None:
        return ""
    return f": {reason.kind}" if reason.error is None else f": {reason.error.message.removesuffix('.')}"


def _message(outcome: CommandOutcome) -> ShowMessageParams:
    """Say in one message what came of a command."""
    if outcome.problem is not UNSET:
        return ShowMessageParams(2, f"refold: {outcome.problem}")
    if outcome.edit is UNSET:
        return ShowMessageParams(3, f"refold: {outcome.text[:MAX_MESSAGE] or 'The reply has no text.'}")
    where = "in the editor; it is unsaved" if outcome.edit.unsaved else "on disk"
    return ShowMessageParams(3, f"refold edited {outcome.edit.path} {where}.")
