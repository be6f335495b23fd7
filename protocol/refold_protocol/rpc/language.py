"""The language-server side of `initialize`: what the client announced, and what is offered for it.

The offer is static text in the form of LSP 3.17; a test compares it with what pygls would build. Imported only for clients
that announced documents or a workspace, because the answer to `initialize` waits for it. Must not know pygls.
"""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from refold_protocol.rpc.initialize import ClientCapabilities, InitializeParams, ServerCapabilities, position_encoding

EXPLAIN: Final = "refold.explain"
FIX: Final = "refold.fix"
EDIT: Final = "refold.edit"
COMMANDS: Final = (EXPLAIN, FIX, EDIT)
"""The commands of `workspace/executeCommand`. `commands.py` has their arguments and results."""

ACTION_KINDS: Final = {EXPLAIN: "refold.explain", FIX: "quickfix", EDIT: "refactor.rewrite"}
"""The kind of code action by which each command is offered; LSP has no word for explaining."""

_Shape = TypeVar("_Shape", bound=Struct)


class Registrable(Struct, frozen=True, gc=False, rename="camel"):
    """A client's capability of which only this is read: whether it can be registered later."""

    dynamic_registration: bool | None = None


class CodeActionClient(Struct, frozen=True, gc=False, rename="camel"):
    """`textDocument.codeAction`. A client without literals takes commands only."""

    dynamic_registration: bool | None = None
    code_action_literal_support: Raw | UnsetType = UNSET


class TextDocumentClient(Struct, frozen=True, gc=False, rename="camel"):
    """What is read of `textDocument`."""

    synchronization: Registrable | None = None
    code_action: CodeActionClient | None = None


class WorkspaceEditClient(Struct, frozen=True, gc=False, rename="camel"):
    """`workspace.workspaceEdit`: whether an edit can name the version that it is for."""

    document_changes: bool | None = None


class WorkspaceClient(Struct, frozen=True, gc=False, rename="camel"):
    """What is read of `workspace`."""

    apply_edit: bool | None = None
    workspace_edit: WorkspaceEditClient | None = None
    workspace_folders: bool | None = None
    execute_command: Registrable | None = None


class WindowClient(Struct, frozen=True, gc=False, rename="camel"):
    """What is read of `window`: whether progress may be begun that the client did not ask for."""

    work_done_progress: bool | None = None


class Announced(Struct, frozen=True, gc=False):
    """What a client announced of what the language-server side uses."""

    text_document: TextDocumentClient = TextDocumentClient()
    workspace: WorkspaceClient = WorkspaceClient()
    window: WindowClient = WindowClient()

    @property
    def needs_language_side(self) -> bool:
        """Whether anything of it is served by the language-server side."""
        documents, workspace = self.text_document, self.workspace
        return (
            documents.synchronization is not None
            or documents.code_action is not None
            or workspace.execute_command is not None
            or workspace.workspace_folders is True
        )

    @property
    def takes_code_actions(self) -> bool:
        """Whether it takes code actions in full, not commands only."""
        action = self.text_document.code_action
        return action is not None and action.code_action_literal_support is not UNSET

    @property
    def registers_code_actions(self) -> bool:
        """Whether code actions are registered later instead of being offered in the answer to `initialize`."""
        action = self.text_document.code_action
        return action is not None and action.dynamic_registration is True

    @property
    def registers_commands(self) -> bool:
        """The same of commands."""
        command = self.workspace.execute_command
        return command is not None and command.dynamic_registration is True

    @property
    def shows_progress(self) -> bool:
        """Whether progress may be begun that it did not ask for."""
        return self.window.work_done_progress is True

    @property
    def applies_edits(self) -> bool:
        """Whether it can be asked to edit its documents."""
        return self.workspace.apply_edit is True

    @property
    def checks_versions(self) -> bool:
        """Whether such an edit can name the version of the document that it is for."""
        edits = self.workspace.workspace_edit
        return edits is not None and edits.document_changes is True


class WorkspaceFolder(Struct, frozen=True, gc=False):
    """A folder that the client shows; `name` is for people."""

    uri: str
    name: str = ""


class LanguageParams(Struct, frozen=True, gc=False):
    """What `initialize` said for the language-server side: what was announced, what positions are counted in, and the
    folders in the client's order; where it named none, the deprecated root as a URI or as a path."""

    announced: Announced = Announced()
    encoding: str = "utf-16"
    folders: tuple[WorkspaceFolder, ...] = ()
    root_uri: str | None = None
    root_path: str | None = None


class _Folders(Struct, frozen=True, gc=False, rename="camel"):
    workspace_folders: tuple[WorkspaceFolder, ...] | None = None
    root_uri: str | None = None
    root_path: str | None = None


def language_params(params: InitializeParams, raw: Raw | None) -> LanguageParams:
    """Read what `initialize` said, from its params as typed and as they came. Folders whose shape is not LSP's count as
    none."""
    given = _read(UNSET if raw is None else raw, _Folders)
    return LanguageParams(
        announced(params.capabilities),
        position_encoding(params.capabilities),
        given.workspace_folders or (),
        given.root_uri,
        given.root_path,
    )


def announced(capabilities: ClientCapabilities | None) -> Announced:
    """Read what the client announced. A part whose shape is not LSP's counts as not announced."""
    if capabilities is None:
        return Announced()
    return Announced(
        _read(capabilities.text_document, TextDocumentClient),
        _read(capabilities.workspace, WorkspaceClient),
        _read(capabilities.window, WindowClient),
    )


def with_language_side(offered: ServerCapabilities, capabilities: ClientCapabilities) -> ServerCapabilities:
    """Add to an answer what the language-server side offers to this client; nothing where it needs none of it."""
    client = announced(capabilities)
    if not client.needs_language_side:
        return offered
    return msgspec.structs.replace(
        offered,
        text_document_sync=_SYNC,
        code_action_provider=UNSET if client.registers_code_actions else code_action_options(client),
        execute_command_provider=UNSET if client.registers_commands else COMMAND_OPTIONS,
        workspace=_FOLDERS,
    )


def code_action_options(client: Announced) -> Raw:
    """Give LSP's `CodeActionOptions`, or `true` for a client that would not understand them."""
    return _ACTIONS if client.takes_code_actions else Raw(b"true")


def registered_actions(client: Announced) -> Raw:
    """Give LSP's `CodeActionRegistrationOptions`: the same, for files only."""
    kinds = {"codeActionKinds": tuple(ACTION_KINDS.values())} if client.takes_code_actions else {}
    return Raw(msgspec.json.encode({"documentSelector": ({"scheme": "file"},), **kinds}))


def _read(part: Raw | UnsetType, shape: type[_Shape]) -> _Shape:
    if part is UNSET:
        return shape()
    try:
        return msgspec.json.decode(part, type=shape)
    except (msgspec.DecodeError, RecursionError):  # it may still be a good client of the native protocol
        return shape()


COMMAND_OPTIONS: Final = Raw(msgspec.json.encode({"commands": COMMANDS, "workDoneProgress": True}))
"""LSP's `ExecuteCommandOptions`."""

_ACTIONS: Final = Raw(msgspec.json.encode({"codeActionKinds": tuple(ACTION_KINDS.values())}))
_SYNC: Final = Raw(b'{"openClose":true,"change":2,"save":true}')  # 2: incremental
_FOLDERS: Final = Raw(b'{"workspaceFolders":{"supported":true,"changeNotifications":true}}')
