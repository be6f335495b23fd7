"""The language-server side of one connection: handlers, open buffers, a beginning and an end.

It is there for a client that announced documents, folders, actions or commands; for any other, nothing is imported, no file is
open, and its methods are unknown. The backend, which speaks LSP, is imported in a thread. Whatever is asked of it happens in
the order in which it was asked, before and after it is there; nothing else of the daemon waits for it. Where it cannot be
loaded, requests are refused and there are no documents. Must not know pygls.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypeVar
from uuid import uuid4

from msgspec import Raw

from refold_protocol.ids import InputId
from refold_protocol.rpc.initialize import ClientCapabilities, InitializeParams
from refold_protocol.rpc.lsp_types import CreateProgressParams
from refold_protocol.rpc.wire_errors import WireError, internal_error, method_not_found, request_cancelled
from refold_protocol.session.messages import Source
from refold_server.rpc.client_requests import PeerError, PeerGoneError
from refold_server.rpc.dispatch import Handler
from refold_server.rpc.method import Method, ProgressToken, notification_row, request_row
from refold_server.rpc.progress import Progress
from refold_server.sessions.session import Session, Spawn
from refold_server.sessions.session_registry import Sessions
from refold_server.tools.open_buffers import OpenBuffer, closed_meanwhile
from refold_server.tools.tool_failure import ToolFailure

if TYPE_CHECKING:  # what clients without documents need not wait for
    from refold_protocol.rpc.language import LanguageParams
    from refold_server.lsp.selection_commands import ActionRequest
    from refold_server.lsp.text_positions import OpenDocument

BURST: Final = 16
"""So many steps that waited are taken before the loop turns to other things."""

LATER_S: Final = 0.2
"""Seconds by which the import waits for other things that clients do first, unless somebody waits for an answer: Python's
threads share one interpreter, so everything would take twice as long meanwhile."""

T = TypeVar("T")

logger = logging.getLogger(__name__)


class LspClient(Protocol):
    """The client, as this side may address it."""

    def notify(self, method: str, params: object = None) -> None:
        """Send a notification."""
        ...

    async def request(self, method: str, params: object = None) -> Raw:
        """Ask and give the result as it came. Raises PeerError and PeerGoneError."""
        ...


class LspBackend(Protocol):
    """The library that speaks LSP, ready to serve. All calls belong to the event loop's thread."""

    def notify(self, method: str, params: Raw | None) -> None:
        """Take a notification. What is wrong with it is logged."""
        ...

    def request(self, method: str, params: Raw | None) -> Raw | Callable[[], Awaitable[object]]:
        """Take a request and give its result, or an async function that makes it, to be awaited in the request's own task.
        Raises WireError."""
        ...

    def documents(self) -> tuple[OpenDocument, ...]:
        """Give the open documents as of now."""
        ...

    def saved(self, document: OpenDocument) -> None:
        """Remember that the text of this version was written to disk."""
        ...

    def folders(self) -> tuple[str, ...]:
        """Give the paths of the workspace's folders, in the client's order."""
        ...


Actions: TypeAlias = "Callable[[ActionRequest, tuple[OpenDocument, ...]], object]"
"""Gives the code actions for what was asked of the open documents, in order, as they go over the wire."""

RunCommand: TypeAlias = Callable[[str, tuple[Any, ...], ProgressToken | None], Awaitable[object]]
"""Runs a command with its arguments and the token of its progress, and gives its result. Raises WireError and RefoldError."""

MakeBackend: TypeAlias = "Callable[[LanguageParams, Actions, RunCommand], LspBackend]"
"""Makes the backend; called in a thread."""


class BackendQueue:
    """The backend, and what waits for it in order. `make` is called in a thread."""

    def __init__(self, make: Callable[[], LspBackend]) -> None:
        self._make = make
        self._waiting: deque[Callable[[], None]] = deque()
        self._backend: LspBackend | None = None
        self._failure: str | None = None
        self._is_settled = False
        self._loop: asyncio.AbstractEventLoop
        self._later: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to load it, now or a little later; call it on the event loop, once. No end of a connection waits for an import:
        its thread ends with the process."""
        self._loop = asyncio.get_running_loop()
        self._later = self._loop.call_later(LATER_S, self._begin)

    def notify(self, method: str, params: Raw | None) -> None:
        """Take a notification."""

        def step() -> None:
            try:
                if self._backend is not None:
                    self._backend.notify(method, params)
            except Exception:  # a fault here or in the library costs this notification: there is nobody to tell
                logger.exception("%s", method)

        self._take_turn(step)

    async def request(self, method: str, params: Raw | None) -> object:
        """Take a request and give its result. Raises WireError, and what a command raises."""

        def serve(backend: LspBackend | None) -> Raw | Callable[[], Awaitable[object]]:
            if backend is None:
                raise WireError(request_cancelled(method) if self._failure is None else internal_error(self._failure))
            return backend.request(method, params)

        result = await self.in_turn(serve)
        return result if isinstance(result, Raw) else await result()

    async def documents(self) -> tuple[OpenDocument, ...]:
        """Give the open documents as of now, when everything that the client said before was taken in."""
        return await self.in_turn(lambda backend: () if backend is None else backend.documents())

    async def in_turn(self, ask: Callable[[LspBackend | None], T]) -> T:
        """Call `ask` when everything before it was done, and give what it gives; with None where there is none, because
        that failed or the connection ended before."""
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def step() -> None:
            if answer.done():  # whoever asked was cancelled
                return
            try:
                answer.set_result(ask(self._backend))
            except Exception as error:  # noqa: BLE001  # it belongs to whoever asked
                answer.set_exception(error)

        self._take_turn(step)
        self._begin()
        return await answer

    def close(self) -> None:
        """Wait for the library no longer: whoever asked something of it is answered now."""
        self._later = None
        self._settle(None, None)

    def _take_turn(self, step: Callable[[], None]) -> None:
        if self._is_settled and not self._waiting:
            step()
        else:
            self._waiting.append(step)

    def _begin(self) -> None:
        if self._later is not None:
            self._later.cancel()
            self._later = None
            threading.Thread(target=self._load, name="refold-lsp", daemon=True).start()

    def _load(self) -> None:
        backend, failure = None, None
        try:
            backend = self._make()
        except Exception:  # an installation without a working pygls: the rest of the daemon is as good as before
            failure = uuid4().hex[:12]
            logger.exception("%s: the language-server side could not be loaded", failure)
        with suppress(RuntimeError):  # the loop is closed: the connection is over
            self._loop.call_soon_threadsafe(self._settle, backend, failure)

    def _settle(self, backend: LspBackend | None, failure: str | None) -> None:
        if not self._is_settled:
            self._is_settled, self._backend, self._failure = True, backend, failure
            self._catch_up()

    def _catch_up(self) -> None:
        for _ in range(min(BURST, len(self._waiting))):
            self._waiting[0]()  # it stays the first while it is done: what it causes comes after the others
            self._waiting.popleft()
        if self._waiting:
            self._loop.call_soon(self._catch_up)


def pygls_backend(params: LanguageParams, actions: Actions, run: RunCommand) -> LspBackend:
    """Import pygls and give the backend that it is."""
    from refold_server.lsp.lsp_backend import PyglsBackend

    return PyglsBackend(params, actions, run)


class ClientProgress:
    """The progress of commands: by the client's token, or by one of ours where the client takes that. Keeps the promises of
    `CommandProgress`."""

    def __init__(self, progress: Progress, client: LspClient, spawn: Spawn, *, own: bool) -> None:
        self._progress = progress
        self._client = client
        self._spawn = spawn
        self._own = own

    def reserve(self, token: ProgressToken) -> None:
        """Take a token into use. Raises WireError for one that is."""
        self._progress.reserve(token, "workspace/executeCommand")

    def release(self, token: ProgressToken) -> None:
        """Give a token back."""
        self._progress.release(token)

    def begin(self, token: ProgressToken | None, session: Session, given: InputId, turn: int, title: str) -> None:
        """Tell the progress of a turn."""
        if token is not None:
            self._progress.follow(token, session, given, turn, title=title)
        elif self._own:
            self._spawn(lambda: self._begin_own(session, given, turn, title))

    async def _begin_own(self, session: Session, given: InputId, turn: int, title: str) -> None:
        token = f"refold/{given}"
        try:
            await self._client.request("window/workDoneProgress/create", CreateProgressParams(token))
        except PeerError as error:  # the command runs all the same
            logger.info("the client shows no progress: %s", error)
        except PeerGoneError:  # nobody is left to show it
            return
        else:
            self._progress.follow(self._progress.reserve(token), session, given, turn, title=title)


class LspServer:
    """What exists for a client that needs it. Keeps the promises of `Editor`."""

    def __init__(
        self,
        params: InitializeParams,
        raw: Raw | None,
        client: LspClient,
        sessions: Callable[[], Awaitable[Sessions]],
        spawn: Spawn,
        make: MakeBackend,
        progress: Progress,
    ) -> None:
        from refold_protocol.rpc.language import language_params
        from refold_server.lsp.selection_commands import SelectionCommands, SelectionServices

        given = language_params(params, raw)
        self._announced = given.announced
        self._client = client
        self.encoding = given.encoding
        self.applies_edits = given.announced.applies_edits
        self.checks_versions = given.announced.checks_versions
        source = Source("client", None if params.client_info is None else params.client_info.name)
        shown = ClientProgress(progress, client, spawn, own=given.announced.shows_progress)
        options = params.initialization_options
        waits = options is not None and options.wait_for_commands
        services = SelectionServices(self, self._folders, sessions, source, client.notify, spawn, shown, waits)
        self.commands = SelectionCommands(services)
        self.backend = BackendQueue(lambda: make(given, self._actions, self.commands.run))
        self.backend.start()

    async def documents(self) -> tuple[OpenDocument, ...]:
        """Give the open documents."""
        return await self.backend.documents()

    async def saved(self, document: OpenDocument) -> None:
        """Remember what is on disk."""
        await self.backend.in_turn(lambda backend: None if backend is None else backend.saved(document))

    async def request(self, method: str, params: object = None) -> Raw:
        """Ask the client."""
        return await self._client.request(method, params)

    async def register(self) -> None:
        """Register what the client wants registered rather than offered, once it can be served."""
        from refold_protocol.rpc.language import COMMAND_OPTIONS, registered_actions
        from refold_protocol.rpc.lsp_types import Registration, RegistrationParams

        announced = self._announced
        wanted: list[Registration] = []
        if announced.registers_code_actions:
            wanted.append(Registration("refold-actions", "textDocument/codeAction", registered_actions(announced)))
        if announced.registers_commands:
            wanted.append(Registration("refold-commands", "workspace/executeCommand", COMMAND_OPTIONS))
        if not wanted or await self.backend.in_turn(lambda backend: backend is None):
            return
        try:
            await self._client.request("client/registerCapability", RegistrationParams(tuple(wanted)))
        except PeerError as error:  # it has no actions then; all else works
            logger.warning("the client refused to register code actions and commands: %s", error)
        except PeerGoneError:  # nobody is left to use them
            return

    async def _folders(self) -> tuple[str, ...]:
        return await self.backend.in_turn(lambda backend: () if backend is None else backend.folders())

    def _actions(self, asked: ActionRequest, documents: tuple[OpenDocument, ...]) -> object:
        from refold_server.lsp.selection_commands import offered

        return offered(asked, documents, literals=self._announced.takes_code_actions)


class LspBridge:
    """The language-server side. `sessions` opens the store with the first call; `make` makes the backend; `tell` shows a
    message to a client that sees no events."""

    def __init__(
        self,
        client: LspClient,
        sessions: Callable[[], Awaitable[Sessions]],
        spawn: Spawn,
        make: MakeBackend,
        progress: Progress,
        tell: Callable[[str], None],
    ) -> None:
        self._progress = progress
        self._tell = tell
        self._client = client
        self._sessions = sessions
        self._spawn = spawn
        self._make = make
        self._server: LspServer | None = None

    def handlers(self) -> Mapping[str, Handler]:
        """Give the handlers of LANGUAGE_METHODS and of `initialized`. They refuse what they get where `begin` found no need."""
        requests = [row.name for row in LANGUAGE_METHODS.values() if row.kind == "request"]
        notifications = [row.name for row in LANGUAGE_METHODS.values() if row.kind == "notification"]
        return {
            **{name: self._request_handler(name) for name in requests},
            **{name: self._notification_handler(name) for name in notifications},
            "initialized": self._initialized,
        }

    def begin(self, params: InitializeParams, raw: Raw | None) -> None:
        """Begin for a client whose `initialize` was good. Call it on the event loop, once."""
        if _is_needed(params.capabilities):
            self._server = LspServer(params, raw, self._client, self._sessions, self._spawn, self._make, self._progress)

    async def snapshot(self) -> tuple[OpenBuffer, ...]:
        """Give the files that the client has open, as file tools see them: after all that it said before."""
        documents = () if self._server is None else await self._server.documents()
        return tuple(
            OpenBuffer(one.path, one.text, one.version, one.saved, one.language) for one in documents if one.path is not None
        )

    async def edit(self, buffer: OpenBuffer, text: str, label: str) -> None:
        """Have the client edit a file that it has open with unsaved changes. Raises ToolFailure."""
        document = await self._document_of(buffer)
        if self._server is None or document is None:
            raise closed_meanwhile(buffer)
        from refold_server.lsp.editor_edits import EditRefused, edit_open_text

        try:
            await edit_open_text(self._server, document, text, label=label)
        except EditRefused as refusal:
            raise ToolFailure("TOOL_FAILED", "EditorRefused", f"nothing was changed: {refusal}") from None

    async def saved(self, buffer: OpenBuffer) -> None:
        """Remember that the file of a buffer without changes was written to; one that was changed since is unsaved."""
        document = await self._document_of(buffer)
        if self._server is not None and document is not None:
            await self._server.saved(document)
            self._tell(f"{document.path} was edited on disk; an editor that does not reload it by itself shows the old text.")

    def close(self) -> None:
        """End: nothing is edited any more, and nobody waits for the import."""
        if self._server is not None:
            self._server.commands.close()
            self._server.backend.close()

    async def _document_of(self, buffer: OpenBuffer) -> OpenDocument | None:
        """Give the document that a buffer was taken from, None where it is not as it was."""
        documents = () if self._server is None else await self._server.documents()
        same = (one for one in documents if (one.path, one.version, one.text) == (buffer.path, buffer.version, buffer.text))
        return next(same, None)

    def _request_handler(self, name: str) -> Handler:
        async def handle(params: Raw) -> object:
            if self._server is None:
                raise WireError(method_not_found(name))
            return await self._server.backend.request(name, params)

        return handle

    def _notification_handler(self, name: str) -> Handler:
        async def handle(params: Raw) -> None:
            if self._server is not None:
                self._server.backend.notify(name, params)

        return handle

    async def _initialized(self, params: None) -> None:
        del params
        if self._server is not None:
            await self._server.register()


def _is_needed(capabilities: ClientCapabilities | None) -> bool:
    if capabilities is None or not capabilities.names_documents:
        return False
    from refold_protocol.rpc.language import announced

    return announced(capabilities).needs_language_side


_LANGUAGE_ROWS: Final = (
    notification_row("textDocument/didOpen", "to-daemon", Raw, "A document is open; its text is the client's from now on."),
    notification_row("textDocument/didChange", "to-daemon", Raw, "The text of an open document changed."),
    notification_row("textDocument/didSave", "to-daemon", Raw, "The text of an open document is on disk."),
    notification_row("textDocument/didClose", "to-daemon", Raw, "A document is closed; its text is that on disk."),
    notification_row("workspace/didChangeWorkspaceFolders", "to-daemon", Raw, "Folders came and went."),
    request_row("textDocument/codeAction", Raw, Raw, "Say what can be done with a selection."),
    request_row("workspace/executeCommand", Raw, Raw, "Do it; docs/selections.md has the commands and their arguments."),
)

LANGUAGE_METHODS: Final[dict[str, Method]] = {row.name: row for row in _LANGUAGE_ROWS}
"""The methods of LSP 3.17 that the language-server side serves, by name. Their types are LSP's own, so params and results
pass here as they came."""
