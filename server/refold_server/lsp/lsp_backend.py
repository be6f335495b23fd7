"""The language-server library, pygls: the only file that imports it.

pygls reads standard messages, keeps the documents and picks the handler. It is handed one message at a time and writes its
replies to a writer that keeps them; it sends nothing to the client by itself. Its trap: it reads positions wrongly, so the
documents are of our own class. Importing this takes a third of a second of CPU, so that is done in a thread.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import unquote
from uuid import uuid4

import cattrs
import msgspec
from lsprotocol import types
from msgspec import Raw
from pygls.exceptions import JsonRpcException
from pygls.lsp.server import LanguageServer
from pygls.workspace import TextDocument

from refold_protocol.rpc.initialize import VERSION
from refold_protocol.rpc.language import COMMANDS, LanguageParams
from refold_protocol.rpc.lsp_types import Position, Range
from refold_protocol.rpc.wire_errors import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    WireError,
    bad_param,
    internal_error,
    method_not_found,
)
from refold_server.lsp.selection_commands import ActionRequest
from refold_server.lsp.text_positions import OpenDocument, Splice, path_of_uri, span_of, spliced

logger = logging.getLogger(__name__)


class PyglsBackend:
    """pygls, ready to serve. Made in any thread, used on the event loop's. `actions` gives the code actions for what was asked
    of the open documents, `run` runs a command. Keeps the promises of `LspBackend`."""

    def __init__(
        self,
        params: LanguageParams,
        actions: Callable[[ActionRequest, tuple[OpenDocument, ...]], object],
        run: Callable[[str, tuple[Any, ...], int | str | None], Awaitable[object]],
    ) -> None:
        logging.getLogger("pygls").setLevel(logging.CRITICAL)  # it logs whole messages, and every refusal as a failure
        self._server = _Server("refold", VERSION, types.TextDocumentSyncKind.Incremental)
        self._replies = _Replies()
        self._server.protocol.set_writer(self._replies, include_headers=False)
        self._actions = actions
        self._command: Callable[[int | str | None], Awaitable[object]] | None = None
        self._last_id = 0
        self._register()
        for name in COMMANDS:
            self._server.command(name)(self._begins(partial(run, name)))
        self.request("initialize", Raw(json.dumps(_initialize(params)).encode()))

    def notify(self, method: str, params: Raw | None) -> None:
        """Take a notification. A document whose change cannot be read is forgotten: the disk is better than a wrong text."""
        given = _json(params)
        if method == types.TEXT_DOCUMENT_DID_CHANGE:
            _drop_null_ranges(given)
        try:
            self._handle({"jsonrpc": "2.0", "method": method}, given)
        except WireError as error:
            logger.warning("%s", error)
            if method == types.TEXT_DOCUMENT_DID_CHANGE:
                self._server.workspace.remove_text_document(_uri(given))

    def request(self, method: str, params: Raw | None) -> Raw | Callable[[], Awaitable[object]]:
        """Take a request and give its result; a command's is still to be made. Every handler is a plain function, so the reply
        is there when it returns."""
        self._last_id += 1
        given = _json(params)
        if method == types.TEXT_DOCUMENT_CODE_ACTION:
            _keep_place_and_text(given)
        self._handle({"jsonrpc": "2.0", "id": self._last_id, "method": method}, given)
        reply, command = self._replies.taken(self._last_id), self._command
        self._command = None
        if reply is None:
            raise WireError(internal_error(_logged(f"pygls gave no reply to {method}", "")))
        if "error" in reply:
            raise WireError(_refusal(method, reply["error"]))
        if command is None:
            return Raw(json.dumps(reply.get("result")).encode())
        token = _object(given).get("workDoneToken")
        return partial(command, token if isinstance(token, int | str) else None)

    def documents(self) -> tuple[OpenDocument, ...]:
        """Give the open documents as of now."""
        return tuple(document.snapshot() for document in self._documents.values() if isinstance(document, _Document))

    def saved(self, document: OpenDocument) -> None:
        """Remember that the text of this version was written to disk."""
        self._saved(document.uri, document.version)

    def folders(self) -> tuple[str, ...]:
        """Give the paths of the workspace's folders."""
        workspace = self._server.workspace
        uris = [folder.uri for folder in workspace.folders.values()] or [uri for uri in (workspace.root_uri,) if uri]
        return tuple(path for path in map(path_of_uri, uris) if path is not None)

    @property
    def _documents(self) -> dict[str, TextDocument]:
        return self._server.workspace.text_documents

    def _handle(self, message: dict[str, Any], params: Any) -> None:
        """Hand a message to pygls. Its own reader is not used: it takes any object inside of a message that has a member
        `jsonrpc` for a message. Raises WireError."""
        protocol = self._server.protocol
        try:
            structured = protocol.structure_message(message | {"params": params})
        except JsonRpcException as error:
            raise WireError(bad_param(message["method"], *_place_and_reason(error.__cause__))) from None
        protocol.handle_message(cast("Any", structured))
        # pygls 2.1 keeps the future of every notification for ever; no handler waits for anything, so all are done
        protocol._request_futures.clear()  # pyright: ignore[reportPrivateUsage]

    def _register(self) -> None:
        """Register what pygls has no handler of its own for, and what it is to do besides."""

        def did_open(params: types.DidOpenTextDocumentParams) -> None:
            given, codec = params.text_document, self._server.workspace.position_codec
            document = _Document(given.uri, given.text, given.version, given.language_id, position_codec=codec)
            self._documents[unquote(given.uri)] = document  # in the place of the one that pygls made just now

        def did_save(params: types.DidSaveTextDocumentParams) -> None:
            self._saved(params.text_document.uri, None)

        def code_action(params: types.CodeActionParams) -> object:
            context = params.context
            only = None if context.only is None else tuple(context.only)
            reported = tuple(f"line {one.range.start.line + 1}: {one.message}" for one in context.diagnostics)
            asked = ActionRequest(params.text_document.uri, _range(params.range), only, reported)
            return msgspec.json.decode(msgspec.json.encode(self._actions(asked, self.documents())))

        self._server.feature(types.TEXT_DOCUMENT_DID_OPEN)(did_open)
        self._server.feature(types.TEXT_DOCUMENT_DID_SAVE)(did_save)
        self._server.feature(types.TEXT_DOCUMENT_CODE_ACTION)(code_action)

    def _saved(self, uri: str, version: int | None) -> None:
        known = self._documents.get(unquote(uri))
        if isinstance(known, _Document):
            known.saved_version = known.version if version is None else version

    def _begins(self, run: Callable[[tuple[Any, ...], int | str | None], Awaitable[object]]) -> Callable[..., None]:
        """Give the handler of a command: it notes what is to be awaited, since pygls would turn its errors into texts."""

        def command(*arguments: Any) -> None:
            self._command = partial(run, arguments)

        return command


class _Replies:
    """The writer of pygls: it keeps replies by the ids of their requests."""

    def __init__(self) -> None:
        self._replies: dict[object, dict[str, Any]] = {}

    def write(self, data: bytes) -> None:
        """Keep a reply."""
        message = json.loads(data)
        if "method" in message:
            logger.warning("pygls wanted to send %s to the client; it was not sent", message["method"])
        else:
            self._replies[message["id"]] = message

    def taken(self, request: int) -> dict[str, Any] | None:
        """Give a reply and forget it."""
        return self._replies.pop(request, None)

    def close(self) -> None:
        """Do nothing."""


class _Document(TextDocument):
    """A document that reads positions by our own arithmetic: pygls' splits lines where LSP does not, and puts a position
    inside of a pair after it and one past a line's end before the last character, or between `\\r` and `\\n`."""

    saved_version: int | None = None

    def apply_change(self, change: types.TextDocumentContentChangeEvent) -> None:
        if isinstance(change, types.TextDocumentContentChangePartial):
            start, end = span_of(self.source, _range(change.range), str(self.position_codec.encoding))
            change = types.TextDocumentContentChangeWholeDocument(spliced(self.source, (Splice(start, end, change.text),)))
        super().apply_change(change)
        self._source = _joined(self.source)

    def snapshot(self) -> OpenDocument:
        version = self.version or 0
        saved, language = version == self.saved_version, self.language_id or ""
        return OpenDocument(self.uri, path_of_uri(self.uri), version, self.source, saved, language)


class _Server(LanguageServer):
    """A server that tells its troubles to the log: pygls sends them to the client as messages, tracebacks included."""

    def report_server_error(self, error: Exception, source: Any) -> None:
        del source
        logger.warning("a notification failed: %s", str(error) or type(error).__name__)


def _initialize(params: LanguageParams) -> dict[str, Any]:
    """Give the params of `initialize` that pygls needs. Not the client's own: whatever is odd in them was answered before."""
    return {
        "processId": None,
        "rootUri": _root(params),
        "workspaceFolders": [{"uri": folder.uri, "name": folder.name} for folder in params.folders],
        "capabilities": {"general": {"positionEncodings": [params.encoding]}},
    }


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


def _keep_place_and_text(given: Any) -> None:
    """Leave of each diagnostic in the context of code actions where it is and what it says: they are other servers', and no
    other member of theirs is a reason to offer nothing."""
    context = _object(_object(given).get("context"))
    diagnostics = context.get("diagnostics")
    if not isinstance(diagnostics, list):
        return
    kept: list[dict[str, Any]] = []
    for one in map(_object, cast("list[Any]", diagnostics)):
        message = one.get("message")
        text = _object(message).get("value") if isinstance(message, dict) else message
        if isinstance(text, str) and isinstance(one.get("range"), dict):
            kept.append({"range": one["range"], "message": text})
    context["diagnostics"] = kept


def _object(value: Any) -> dict[str, Any]:
    """Give a JSON object as it is; an empty one for anything else."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _joined(text: str) -> str:
    """Give a text in which two halves of a surrogate pair that came one after the other are the character that they make."""
    if not any("\ud800" <= character <= "\udfff" for character in text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


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


def _refusal(method: str, error: dict[str, Any]) -> Any:
    if error["code"] == METHOD_NOT_FOUND:
        return method_not_found(method)
    if error["code"] == INVALID_PARAMS:
        return bad_param(method, "$", error["message"])
    return internal_error(_logged(f"{method}: {error['message']}", error.get("data")))


def _logged(message: str, details: object) -> str:
    diagnostics = uuid4().hex[:12]
    logger.error("%s: %s %s", diagnostics, message, details)
    return diagnostics


_UNDERSCORE: Final = re.compile("_([a-z])")
