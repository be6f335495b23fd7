"""Owns what serves a client that needs the language-server side: it puts library, commands, documents and edits together.

Must not know pygls: the adapter is imported in the wing's thread.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from msgspec import Raw

from refold_protocol.rpc.documents import Registration, RegistrationParams
from refold_protocol.rpc.initialize import InitializeParams
from refold_protocol.rpc.language import COMMAND_OPTIONS, LanguageParams, language_params, registered_actions
from refold_protocol.session.messages import Source
from refold_server.lsp.actions import offered
from refold_server.lsp.commands import Commands, Workbench
from refold_server.lsp.documents import OpenDocument
from refold_server.lsp.mounted import Asked, ClientSide, Features, Mounted
from refold_server.lsp.wing import Wing
from refold_server.rpc.peer import PeerError, PeerGoneError
from refold_server.sessions.registry import Sessions
from refold_server.sessions.session import Spawn

Mount: TypeAlias = Callable[[LanguageParams, Features, ClientSide, Spawn], Mounted]
"""Makes the library; called in a thread."""

logger = logging.getLogger(__name__)


def mount_pygls(params: LanguageParams, features: Features, client: ClientSide, spawn: Spawn) -> Mounted:
    """Import pygls and mount it."""
    from refold_server.lsp.adapter import PyglsMounted

    return PyglsMounted(params, features, client, spawn)


class Serving:
    """What exists for a client that needs it. Keeps the promises of `Features` and of `Editor`."""

    def __init__(
        self,
        params: InitializeParams,
        raw: Raw | None,
        client: ClientSide,
        sessions: Callable[[], Awaitable[Sessions]],
        spawn: Spawn,
        mount: Mount,
    ) -> None:
        given = language_params(params, raw)
        self._announced = given.announced
        self._client = client
        self.encoding = given.encoding
        self.applies_edits = given.announced.applies_edits
        self.checks_versions = given.announced.checks_versions
        source = Source("client", None if params.client_info is None else params.client_info.name)
        self.commands = Commands(Workbench(self, self._folders, sessions, source, client.notify, spawn))
        self.wing = Wing(lambda: mount(given, self, client, spawn))
        self.wing.start()

    def actions(self, asked: Asked, documents: tuple[OpenDocument, ...]) -> object:
        """Give the code actions."""
        return offered(asked, documents, literals=self._announced.takes_code_actions)

    async def run(self, command: str, arguments: tuple[Any, ...]) -> object:
        """Run a command."""
        return await self.commands.run(command, arguments)

    async def documents(self) -> tuple[OpenDocument, ...]:
        """Give the open documents."""
        return await self.wing.documents()

    async def saved(self, document: OpenDocument) -> None:
        """Remember what is on disk."""
        await self.wing.in_turn(lambda mounted: None if mounted is None else mounted.saved(document))

    async def request(self, method: str, params: object = None) -> Raw:
        """Ask the client."""
        return await self._client.request(method, params)

    async def register(self) -> None:
        """Register what the client wants registered rather than offered, once it can be served."""
        announced = self._announced
        wanted: list[Registration] = []
        if announced.registers_code_actions:
            wanted.append(Registration("refold-actions", "textDocument/codeAction", registered_actions(announced)))
        if announced.registers_commands:
            wanted.append(Registration("refold-commands", "workspace/executeCommand", COMMAND_OPTIONS))
        if not wanted or await self.wing.in_turn(lambda mounted: mounted is None):
            return
        try:
            await self._client.request("client/registerCapability", RegistrationParams(tuple(wanted)))
        except PeerError as error:  # it has no actions then; all else works
            logger.warning("the client refused to register code actions and commands: %s", error)
        except PeerGoneError:  # nobody is left to use them
            return

    async def _folders(self) -> tuple[str, ...]:
        return await self.wing.in_turn(lambda mounted: () if mounted is None else mounted.folders())
