"""Owns the language-server side of one connection as the daemon sees it: handlers, open buffers, a beginning and an end.

It is there for a client that announced documents, folders, actions or commands; for any other, nothing is imported, no file is
open, and its methods are unknown.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from msgspec import Raw

from refold_protocol.rpc.errors import WireError, method_not_found
from refold_protocol.rpc.initialize import ClientCapabilities, InitializeParams
from refold_protocol.rpc.methods import LANGUAGE_METHODS
from refold_server.rpc.dispatch import Handler
from refold_server.sessions.registry import Sessions
from refold_server.sessions.session import Spawn
from refold_server.tools.open_buffers import OpenBuffer, closed_meanwhile
from refold_server.tools.tool_failure import ToolFailure

if TYPE_CHECKING:
    from refold_server.lsp.documents import OpenDocument
    from refold_server.lsp.mounted import ClientSide
    from refold_server.lsp.serving import Mount, Serving


class LanguageSide:
    """The language-server side. `sessions` opens the store with the first call; `mount` replaces pygls in tests."""

    def __init__(
        self,
        client: ClientSide,
        sessions: Callable[[], Awaitable[Sessions]],
        spawn: Spawn,
        mount: Mount | None = None,
    ) -> None:
        self._client = client
        self._sessions = sessions
        self._spawn = spawn
        self._mount = mount
        self._serving: Serving | None = None

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
            from refold_server.lsp.serving import Serving, mount_pygls  # what other clients need not wait for

            self._serving = Serving(params, raw, self._client, self._sessions, self._spawn, self._mount or mount_pygls)

    async def snapshot(self) -> tuple[OpenBuffer, ...]:
        """Give the files that the client has open, as file tools see them: after all that it said before."""
        documents = () if self._serving is None else await self._serving.documents()
        return tuple(
            OpenBuffer(one.path, one.text, one.version, one.saved, one.language) for one in documents if one.path is not None
        )

    async def edit(self, buffer: OpenBuffer, text: str, label: str) -> None:
        """Have the client edit a file that it has open with unsaved changes. Raises ToolFailure."""
        document = await self._document_of(buffer)
        if self._serving is None or document is None:
            raise closed_meanwhile(buffer)
        from refold_server.lsp.edits import EditRefused, edit_open_text

        try:
            await edit_open_text(self._serving, document, text, label=label)
        except EditRefused as refusal:
            raise ToolFailure("TOOL_FAILED", "EditorRefused", f"nothing was changed: {refusal}") from None

    async def saved(self, buffer: OpenBuffer) -> None:
        """Remember that the file of a buffer without changes was written to; one that was changed since is unsaved."""
        document = await self._document_of(buffer)
        if self._serving is not None and document is not None:
            await self._serving.saved(document)

    def close(self) -> None:
        """End: nothing is edited any more, and nobody waits for the import."""
        if self._serving is not None:
            self._serving.commands.close()
            self._serving.wing.close()

    async def _document_of(self, buffer: OpenBuffer) -> OpenDocument | None:
        """Give the document that a buffer was taken from, None where it is not as it was."""
        documents = () if self._serving is None else await self._serving.documents()
        same = (one for one in documents if (one.path, one.version, one.text) == (buffer.path, buffer.version, buffer.text))
        return next(same, None)

    def _request_handler(self, name: str) -> Handler:
        async def handle(params: Raw) -> object:
            if self._serving is None:
                raise WireError(method_not_found(name))
            return await self._serving.wing.request(name, params)

        return handle

    def _notification_handler(self, name: str) -> Handler:
        async def handle(params: Raw) -> None:
            if self._serving is not None:
                self._serving.wing.notify(name, params)

        return handle

    async def _initialized(self, params: None) -> None:
        del params
        if self._serving is not None:
            await self._serving.register()


def _is_needed(capabilities: ClientCapabilities | None) -> bool:
    if capabilities is None or not capabilities.names_documents:
        return False
    from refold_protocol.rpc.language import announced

    return announced(capabilities).needs_language_side
