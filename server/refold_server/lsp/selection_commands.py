"""The commands on a selection: explain, fix or edit it, from the code action that offers one to the edit in the last reply.

Each command of `workspace/executeCommand` takes one argument, a SelectionParams, and gives a CommandResult. The selection is a
reference: its text is taken from the open document when the prompt is accepted, and stands in it, so what the model saw does
not depend on what the document became. Unknown members are refused with their path.

A command is answered when its prompt is on disk, like `turn/start`; what comes of it is told when the turn is over. Ends with
the connection: a turn goes on or ends by the session's rules, but nothing is edited any more. Code actions are offered for
selections of files only: a plain cursor gets none, so that editors show no lamp on every line. Must not know pygls.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import PurePath
from typing import Annotated, Any, Final, Protocol

import msgspec
from anyio import get_cancelled_exc_class
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from refold_protocol.errors import RefoldError
from refold_protocol.ids import InputId, SessionId
from refold_protocol.json_text import repair_surrogates
from refold_protocol.rpc.language import ACTION_KINDS, EDIT, EXPLAIN, FIX
from refold_protocol.rpc.lsp_types import CodeAction, Command, Range, ShowMessageParams
from refold_protocol.rpc.wire_errors import ErrorObject, WireError, bad_param, invalid_params
from refold_protocol.session.events import AbortCause, AssistantMessage, Event, TurnEnd
from refold_protocol.session.messages import Source, TextBlock, text_of
from refold_server.lsp.editor_edits import Editor, EditOutcome, EditRefused, apply_text_edit
from refold_server.lsp.selection_answer import FORMAT, change_of, fenced, replacement_in
from refold_server.lsp.text_positions import OpenDocument, document_named, folder_of, path_of_uri, position_of, span_of
from refold_server.sessions.session import Session, Spawn
from refold_server.sessions.session_registry import Sessions


class SelectionParams(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel", forbid_unknown_fields=True):
    """A selection of an open document, and what to do with it.

    `version` is that of the document for which `range` was computed. `session` is the session to ask in; without it a new
    one is begun for the workspace folder of the document. `instruction` says what is wanted, `diagnostics` what the editor
    reports about the selection. With `wait` the reply comes at the turn's end and has an outcome; without it, the reply
    comes when the prompt is on disk, and the outcome is told by `window/showMessage`. The `initialize` option `waitForCommands`
    sets `wait` for every command.
    """

    uri: str
    range: Range
    version: int | None = None
    session: SessionId | None = None
    instruction: Annotated[str, Meta(max_length=100_000)] | None = None
    diagnostics: Annotated[tuple[str, ...], Meta(max_length=100)] = ()
    wait: bool = False


class ActionRequest(Struct, frozen=True):
    """What a client asked when it asked for code actions: where, which kinds (None: all), and what it reports there."""

    uri: str
    range: Range
    only: tuple[str, ...] | None = None
    diagnostics: tuple[str, ...] = ()


class CommandOutcome(Struct, frozen=True, gc=False):
    """How a command ended: the `reason` object of the turn's end, the text of its last reply, the edit that was made, or
    in a sentence why none was."""

    reason: Raw
    text: str
    edit: EditOutcome | UnsetType = UNSET
    problem: str | UnsetType = UNSET


class CommandResult(Struct, frozen=True, gc=False):
    """What a command started: the input is durable at `seq`, and `turn` is its turn."""

    session: SessionId
    input: InputId
    turn: int
    seq: int
    outcome: CommandOutcome | UnsetType = UNSET


CONTENT_MODIFIED: Final = -32801
"""LSP's code for an answer that would be about a text that is gone."""

ASKED: Final = {
    EXPLAIN: "Explain the selected text.",
    FIX: "Fix what is wrong in the selected text.",
    EDIT: "Edit the selected text.",
}
"""What each command asks for."""

NO_INSTRUCTION: Final = "Do what comments and notes in it ask for; if there are none, improve it without changing what it does."
"""What is asked for by an edit without an instruction."""


class Selection(Struct, frozen=True):
    """A selection as of one moment: from the place `start` to before `end` of a document's text, never empty."""

    document: OpenDocument
    start: int
    end: int

    @property
    def text(self) -> str:
        """The selected text."""
        return self.document.text[self.start : self.end]

    @property
    def lines(self) -> str:
        """The lines, counted from 1, for people: `3` or `3-5`."""
        first, last = self._ends()
        return str(first[0]) if first[0] == last[0] else f"{first[0]}-{last[0]}"

    @property
    def range(self) -> str:
        """The range for the model: lines and columns in characters, counted from 1."""
        first, last = self._ends()
        return f"line {first[0]} column {first[1]} to line {last[0]} column {last[1]}"

    def _ends(self) -> tuple[tuple[int, int], tuple[int, int]]:
        first, last = (position_of(self.document.text, place, "utf-32") for place in (self.start, self.end))
        return (first.line + 1, first.character + 1), (last.line + 1, last.character + 1)


def resolve(command: str, params: SelectionParams, document: OpenDocument | None, encoding: str) -> Selection:
    """Take the selection from the document as it is now. Raises WireError: −32602 where nothing is selected, −32801 where the
    document has another version than the one for which the range was computed."""
    if document is None:
        raise WireError(bad_param(command, "$.arguments[0].uri", f"no open document has the URI {params.uri}"))
    if params.version is not None and params.version != document.version:
        changed = f"{command}: the document has version {document.version} now, not {params.version}; select again"
        raise WireError(ErrorObject(CONTENT_MODIFIED, changed))
    start, end = span_of(document.text, params.range, encoding)
    if start == end:
        raise WireError(bad_param(command, "$.arguments[0].range", "nothing is selected"))
    return Selection(document, start, end)


def shown_path(path: str, folder: str) -> str:
    """Give a file's path below `folder`, or the whole path where it lies elsewhere."""
    pure = PurePath(path)
    return str(pure.relative_to(folder)) if pure.is_relative_to(folder) else path


def prompt(command: str, params: SelectionParams, selection: Selection, path: str) -> tuple[TextBlock, TextBlock]:
    """Give what is asked and, as a block of its own, the reference with the text that it stood for."""
    asked = [ASKED[command]]
    if params.instruction and params.instruction.strip():
        asked.append(params.instruction)
    elif command == EDIT:
        asked.append(NO_INSTRUCTION)
    if params.diagnostics:
        asked.append("\n".join(("The editor reports:", *(f"- {one}" for one in params.diagnostics))))
    if command != EXPLAIN:
        asked.append(FORMAT)
    reference = f"The selection is {path}, {selection.range}, as it is open in the editor:\n\n{fenced(selection.text)}"
    return TextBlock(repair_surrogates("\n\n".join(asked))), TextBlock(repair_surrogates(reference))


TITLES: Final = {EXPLAIN: "refold: explain selection", FIX: "refold: fix selection", EDIT: "refold: edit selection"}
"""The title of each command's action, in the order in which they are offered."""

MAX_DIAGNOSTICS: Final = 20
"""So many diagnostics are handed on."""


def offered(
    asked: ActionRequest, documents: Sequence[OpenDocument], *, literals: bool
) -> tuple[CodeAction, ...] | tuple[Command, ...]:
    """Give the actions for what was asked; commands alone where the client does not take actions (`literals`)."""
    if asked.range.start == asked.range.end or path_of_uri(asked.uri) is None:
        return ()
    names = [name for name in TITLES if _is_wanted(ACTION_KINDS[name], asked.only)]
    document = document_named(documents, asked.uri)
    commands = [_command(name, asked, None if document is None else document.version) for name in names]
    if not literals:
        return tuple(commands)
    return tuple(CodeAction(one.title, ACTION_KINDS[one.command], one) for one in commands)


def _command(name: str, asked: ActionRequest, version: int | None) -> Command:
    reported = asked.diagnostics[:MAX_DIAGNOSTICS] if name == FIX else ()
    params = SelectionParams(asked.uri, asked.range, version, diagnostics=reported)
    return Command(TITLES[name], name, (Raw(msgspec.json.encode(params)),))


def _is_wanted(kind: str, only: tuple[str, ...] | None) -> bool:
    """Tell whether a kind is one of `only` or below one; LSP's empty kind stands for all."""
    return only is None or any(wanted in ("", kind) or kind.startswith(f"{wanted}.") for wanted in only)


MAX_MESSAGE: Final = 4_000
"""Characters of a reply that a message shows."""

logger = logging.getLogger(__name__)


class CommandProgress(Protocol):
    """The progress of commands, shown by the client."""

    def reserve(self, token: int | str) -> None:
        """Take the client's token into use. Raises WireError for one that is."""
        ...

    def release(self, token: int | str) -> None:
        """Give a token back for which nothing began."""
        ...

    def begin(self, token: int | str | None, session: Session, given: InputId, turn: int, title: str) -> None:
        """Tell the progress of a turn, by the client's token or, without one, by our own where the client takes that."""
        ...


class SelectionServices(Struct, frozen=True):
    """What commands work with. `folders` gives the workspace's folders, `sessions` opens the store with the first call. With
    `waits` every command is answered at its turn's end."""

    editor: Editor
    folders: Callable[[], Awaitable[tuple[str, ...]]]
    sessions: Callable[[], Awaitable[Sessions]]
    source: Source
    notify: Callable[[str, object], None]
    spawn: Spawn
    progress: CommandProgress
    waits: bool = False


class _Arguments(Struct, frozen=True):
    arguments: tuple[SelectionParams]


class SelectionCommands:
    """The commands of one connection."""

    def __init__(self, services: SelectionServices) -> None:
        self._services = services
        self._closed = False

    def close(self) -> None:
        """Edit nothing any more: whoever asked for it is gone."""
        self._closed = True

    async def run(self, command: str, arguments: tuple[Any, ...], token: int | str | None = None) -> CommandResult:
        """Run one command; `token` is the client's for its progress. Cancelled, it stops its turn. Raises WireError for
        arguments that are not one, and the errors of `session/open` and `turn/start`."""
        params = read_argument(command, arguments)
        progress = self._services.progress
        if token is not None:
            progress.reserve(token)
        try:
            session, selection, path, started = await self._started(command, params)
        except BaseException:
            if token is not None:
                progress.release(token)
            raise
        progress.begin(token, session, started.input, started.turn, TITLES[command])
        if not (params.wait or self._services.waits):
            self._services.spawn(lambda: self._told_later(command, session, started, selection, path))
            return started
        try:
            return msgspec.structs.replace(started, outcome=await self._outcome(command, session, started, selection, path))
        except get_cancelled_exc_class():
            if not self._closed:  # the client wants it no more; at the connection's end the session's own rules hold
                self._services.spawn(lambda: _stop(session, started.turn))
            raise

    async def _started(self, command: str, params: SelectionParams) -> tuple[Session, Selection, str, CommandResult]:
        path = path_of_uri(params.uri)
        if path is None:
            raise WireError(bad_param(command, "$.arguments[0].uri", f"{params.uri} names no file"))
        selection = await self._resolved(command, params)
        session = await self._session(command, params, selection, path)
        selection = await self._resolved(command, params)  # the text as it is now, when the prompt is accepted
        shown = shown_path(path, session.session_log.handle.record.cwd)
        given, turn, seq = await session.start(prompt(command, params, selection, shown), self._services.source)
        return session, selection, path, CommandResult(session.id, given.input, turn, seq)

    async def _resolved(self, command: str, params: SelectionParams) -> Selection:
        editor = self._services.editor
        return resolve(command, params, document_named(await editor.documents(), params.uri), editor.encoding)

    async def _session(self, command: str, params: SelectionParams, selection: Selection, path: str) -> Session:
        sessions = await self._services.sessions()
        if params.session is not None:
            return await sessions.open(params.session)
        folder = folder_of(path, await self._services.folders()) or path.rpartition("/")[0] or "/"
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
        return await apply_text_edit(self._services.editor, path, change)

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
        self._services.notify("window/showMessage", message)


async def _stop(session: Session, turn: int) -> None:
    await session.interrupt(turn, AbortCause("user"))


def read_argument(command: str, arguments: tuple[Any, ...]) -> SelectionParams:
    """Read a command's argument. Raises WireError naming the path of what is wrong."""
    try:
        return msgspec.convert({"arguments": arguments}, _Arguments).arguments[0]
    except (msgspec.ValidationError, RecursionError) as error:
        raise WireError(invalid_params(command, error)) from None


def _last_reply(session: Session, after: int, end: Event) -> str:
    text = ""
    for event in session.session_log.handle.read(after, end.seq):
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
