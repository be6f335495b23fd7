"""Owns pygls: the only file that imports it, and the only one that relies on what is private there.

pygls reads standard messages, keeps the documents and picks the handler. It writes to nobody: results are handed over, and
what it wants to ask goes through the daemon's own requests, whose ids are integers. Verified with pygls 2.1; each override
says which trap it avoids. Importing this takes a third of a second of CPU, so that is done in a thread.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, cast
from uuid import uuid4

import cattrs
from lsprotocol import types
from msgspec import Raw
from pygls.exceptions import JsonRpcException
from pygls.lsp.server import LanguageServer
from pygls.protocol import LanguageServerProtocol
from pygls.workspace import TextDocument, Workspace

from refold_protocol.rpc.documents import Position, Range
from refold_protocol.rpc.errors import INVALID_PARAMS, METHOD_NOT_FOUND, WireError, bad_param, internal_error, method_not_found
from refold_protocol.rpc.initialize import VERSION
from refold_protocol.rpc.language import COMMANDS, LanguageParams
from refold_server.lsp.documents import OpenDocument, path_of_uri
from refold_server.lsp.mounted import Asked, ClientSide, Deferred, Features
from refold_server.lsp.positions import Splice, span_of, spliced
from refold_server.rpc.peer import PeerError, PeerGoneError
from refold_server.sessions.session import Spawn

logger = logging.getLogger(__name__)


class PyglsMounted:
    """pygls, mounted. Made in any thread, used on the event loop's. Keeps the promises of `Mounted`."""

    def __init__(self, params: LanguageParams, features: Features, client: ClientSide, spawn: Spawn) -> None:
        logging.getLogger("pygls").setLevel(logging.CRITICAL)  # it logs whole messages, and every refusal as a failure
        self._server = _Server("refold", VERSION, types.TextDocumentSyncKind.Incremental, protocol_cls=_Protocol)
        self._protocol = cast("_Protocol", self._server.protocol)
        self._protocol.client, self._protocol.spawn = client, spawn
        self._last_id = 0
        _register(self._server, features, self.documents)
        self.request("initialize", Raw(json.dumps(_initialize(params)).encode()))
        self._workspace = self._protocol.use_workspace(params)

    def notify(self, method: str, params: Raw | None) -> None:
        """Take a notification. A document whose change cannot be read is forgotten: the disk is better than a wrong text."""
        given = _json(params)
        if method == types.TEXT_DOCUMENT_DID_CHANGE:
            _drop_null_ranges(given)
        try:
            self._protocol.handle_message(self._structured({"jsonrpc": "2.0", "method": method}, given))
        except WireError as error:
            logger.warning("%s", error)
            if method == types.TEXT_DOCUMENT_DID_CHANGE:
                self._workspace.remove_text_document(_uri(given))

    def request(self, method: str, params: Raw | None) -> object:
        """Take a request and give its result. Every handler is a plain function, so the result is there when it returns."""
        self._last_id += 1
        self._protocol.handle_message(
            self._structured({"jsonrpc": "2.0", "id": self._last_id, "method": method}, _json(params))
        )
        reply = self._protocol.replies.pop(self._last_id, _NO_REPLY)
        if isinstance(reply, types.ResponseError):
            raise WireError(_refusal(method, reply))
        if reply is _NO_REPLY:
            raise WireError(internal_error(_logged(f"pygls gave no reply to {method}", "")))
        return reply

    def documents(self) -> tuple[OpenDocument, ...]:
        """Give the open documents as of now."""
        documents = cast("dict[str, _Document]", self._workspace.text_documents)
        return tuple(document.snapshot() for document in documents.values())

    def saved(self, document: OpenDocument) -> None:
        """Remember that the text of this version was written to disk."""
        known = self._workspace.get_text_document(document.uri)  # one that was closed meanwhile is made for nobody
        if isinstance(known, _Document):
            known.saved_version = document.version

    def folders(self) -> tuple[str, ...]:
        """Give the paths of the workspace's folders."""
        uris = [folder.uri for folder in self._workspace.folders.values()]
        paths = (path_of_uri(uri) for uri in uris or ([self._workspace.root_uri] if self._workspace.root_uri else []))
        return tuple(path for path in paths if path is not None)

    def _structured(self, message: dict[str, Any], params: Any) -> Any:
        """Give the message in pygls' types. The message only: pygls' own reader would take any object inside of it that has
        a member `jsonrpc` for one. Raises WireError."""
        try:
            return self._protocol.structure_message(message | {"params": params})
        except JsonRpcException as error:
            raise WireError(bad_param(message["method"], *_place_and_reason(error.__cause__))) from None


class _Document(TextDocument):
    """A document that reads positions by our own arithmetic: pygls' splits lines where LSP does not, and puts a position
    inside of a pair behind it and one past a line's end before the last character, or between `\\r` and `\\n`."""

    saved_version: int | None = None

    def apply_change(self, change: types.TextDocumentContentChangeEvent) -> None:
        if isinstance(change, types.TextDocumentContentChangePartial):
            start, end = span_of(self.source, _range(change.range), str(self.position_codec.encoding))
            self._source = spliced(self.source, (Splice(start, end, change.text),))
        else:
            self._source = change.text

    def snapshot(self) -> OpenDocument:
        version = self.version or 0
        saved, language = version == self.saved_version, self.language_id or ""
        return OpenDocument(self.uri, path_of_uri(self.uri), version, self.source, saved, language)


class _Workspace(Workspace):
    """A workspace that makes documents of our kind. None of them reads the disk by itself."""

    def _create_text_document(
        self, doc_uri: str, source: str | None = None, version: int | None = None, language_id: str | None = None
    ) -> TextDocument:
        return _Document(
            doc_uri, source or "", version, language_id, sync_kind=self._sync_kind, position_codec=self._position_codec
        )


class _Server(LanguageServer):
    """A server that tells its troubles to the log: pygls sends them to the client as messages, tracebacks included."""

    def report_server_error(self, error: Exception, source: Any) -> None:
        del source
        logger.warning("a notification failed: %s", str(error) or type(error).__name__)


class _Protocol(LanguageServerProtocol):
    """A protocol that writes nothing by itself."""

    client: ClientSide
    spawn: Spawn

    def __init__(self, server: LanguageServer, converter: cattrs.Converter) -> None:
        super().__init__(server, converter)
        self.replies: dict[int | str, object] = {}

    def use_workspace(self, params: LanguageParams) -> Workspace:
        """Put a workspace of our kind in the place of the one that `initialize` made."""
        folders = [types.WorkspaceFolder(folder.uri, folder.name) for folder in params.folders]
        self._workspace = _Workspace(_root(params), types.TextDocumentSyncKind.Incremental, folders, params.encoding)
        return self._workspace

    def _send_response(self, msg_id: Any, result: Any = None, error: types.ResponseError | None = None) -> None:
        """Keep the reply for `PyglsMounted.request`. pygls would encode it, and leave out a reply that it cannot encode."""
        if error is None and hasattr(result, "__attrs_attrs__"):
            result = Raw(json.dumps(self._converter.unstructure(result)).encode())
        self.replies[msg_id] = result if error is None else error

    def _send_data(self, data: Any) -> None:
        """Send what pygls itself says through the daemon: its own ids are texts, which some editors cannot answer."""
        message = json.loads(json.dumps(data, default=self._serialize_message))
        params = Raw(json.dumps(message.get("params")).encode())
        if "id" in message:
            self.spawn(lambda: self._ask(message["id"], message["method"], params))
        else:
            self.client.notify(message["method"], params)

    async def _ask(self, message_id: str, method: str, params: Raw) -> None:
        try:
            answer = {"result": json.loads(bytes(await self.client.request(method, params)))}
        except PeerError as error:
            answer = {"error": {"code": error.error.code, "message": error.error.message}}
        except PeerGoneError:  # whoever waits is about to end with the connection
            return
        self.handle_message(cast("Any", self.structure_message({"jsonrpc": "2.0", "id": message_id, **answer})))

    def _execute_handler(self, msg_id: Any, handler: Any, callback: Any, args: Any = None, kwargs: Any = None) -> None:
        """Forget the future of what is done: pygls keeps that of every notification for ever."""
        super()._execute_handler(msg_id, handler, callback, args, kwargs)
        future = self._request_futures.get(msg_id)
        if future is not None and future.done():
            del self._request_futures[msg_id]


def _register(server: LanguageServer, features: Features, documents: Callable[[], tuple[OpenDocument, ...]]) -> None:
    """Register what pygls has no handler of its own for."""

    def did_save(params: types.DidSaveTextDocumentParams) -> None:
        document = server.workspace.get_text_document(params.text_document.uri)
        if isinstance(document, _Document):
            document.saved_version = document.version

    def code_action(params: types.CodeActionParams) -> object:
        context = params.context
        only = None if context.only is None else tuple(context.only)
        reported = tuple(f"line {one.range.start.line + 1}: {one.message}" for one in context.diagnostics)
        return features.actions(Asked(params.text_document.uri, _range(params.range), only, reported), documents())

    server.feature(types.TEXT_DOCUMENT_DID_SAVE)(did_save)
    server.feature(types.TEXT_DOCUMENT_CODE_ACTION)(code_action)
    for name in COMMANDS:
        server.command(name)(_command(name, features))


def _command(name: str, features: Features) -> Callable[..., Deferred]:
    def command(*arguments: Any) -> Deferred:
        return Deferred(lambda: features.run(name, arguments))

    return command


def _initialize(params: LanguageParams) -> dict[str, Any]:
    """Give the params of `initialize` that pygls needs. Not the client's own: whatever is odd in them was answered before."""
    capabilities = {"general": {"positionEncodings": [params.encoding]}}
    return {"processId": None, "rootUri": None, "capabilities": capabilities}


def _root(params: LanguageParams) -> str | None:
    if params.root_uri is None and params.root_path and Path(params.root_path).is_absolute():
        return Path(params.root_path).as_uri()
    return params.root_uri


def _json(params: Raw | None) -> Any:
    """Read params. Python's reader takes half a surrogate pair in a text, as editors may send it."""
    try:
        return None if params is None else json.loads(bytes(params))
    except (ValueError, RecursionError):  # nested absurdly: no shape of LSP's
        return None


def _uri(params: Any) -> str:
    try:
        return str(params["textDocument"]["uri"])
    except (KeyError, TypeError):  # another shape than LSP's
        return ""


def _drop_null_ranges(params: Any) -> None:
    """Take a range that is null for one that is absent: some clients send whole texts so, and pygls refuses them."""
    with suppress(KeyError, TypeError, AttributeError):  # another shape than LSP's: pygls says what is wrong with it
        for change in params["contentChanges"]:
            if change.get("range", ...) is None:
                del change["range"]


def _range(given: types.Range) -> Range:
    start, end = (Position(one.line, one.character) for one in (given.start, given.end))
    return Range(start, end)


def _place_and_reason(error: BaseException | None) -> tuple[str, str]:
    """Give the place of the first fault, in the names of the wire, and what is wrong there."""
    if not isinstance(error, Exception):
        return "$", "not what LSP defines"
    first = next(iter(cattrs.transform_error(error)), "")
    reason, _, place = first.partition(" @ $.params")
    return f"${_UNDERSCORE.sub(lambda found: found[1].upper(), place)}", reason or "not what LSP defines"


def _refusal(method: str, error: types.ResponseError) -> Any:
    if error.code == METHOD_NOT_FOUND:
        return method_not_found(method)
    if error.code == INVALID_PARAMS:
        return bad_param(method, "$", error.message)
    return internal_error(_logged(f"{method}: {error.message}", error.data))


def _logged(message: str, details: object) -> str:
    diagnostics = uuid4().hex[:12]
    logger.error("%s: %s %s", diagnostics, message, details)
    return diagnostics


_NO_REPLY: Final = object()
_UNDERSCORE: Final = re.compile("_([a-z])")
