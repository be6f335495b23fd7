"""When the language-server side is there, and what the daemon gets of it."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from refold_protocol.rpc.errors import ErrorObject, WireError
from refold_protocol.rpc.initialize import InitializeParams
from refold_protocol.rpc.methods import LANGUAGE_METHODS
from refold_server.lsp.documents import OpenDocument
from refold_server.lsp.side import LanguageSide
from refold_server.rpc.peer import PeerError, PeerGoneError
from refold_server.tools.open_buffers import OpenBuffer
from tests.support.language import NotingClient, NotingLibrary, Tasks, raw

pytestmark = pytest.mark.anyio

DYNAMIC: Any = {"textDocument": {"codeAction": {"dynamicRegistration": True}}}


class Side:
    """A language-server side with doubles around it; `failure` is what mounting raises."""

    def __init__(self, capabilities: Any, failure: Exception | None = None, **answers: Any) -> None:
        self.library = NotingLibrary()
        self.client = NotingClient(**answers)
        self.mounted = 0
        self._failure = failure
        tasks = Tasks()
        self.side = LanguageSide(self.client, self._no_sessions, tasks.spawn, self._mount)
        given = raw({"capabilities": capabilities})
        self.side.begin(msgspec.json.decode(given, type=InitializeParams), given)
        self.handlers = self.side.handlers()

    def _mount(self, *given: Any) -> NotingLibrary:
        self.mounted += 1
        if self._failure is not None:
            raise self._failure
        return self.library

    async def _no_sessions(self) -> Any:
        raise AssertionError("nothing here needs the store")


async def test_a_client_that_needs_it_not_has_unknown_methods_and_nothing_open() -> None:
    side = Side({})
    assert set(side.handlers) == {*LANGUAGE_METHODS, "initialized"}
    for row in LANGUAGE_METHODS.values():
        if row.kind == "request":
            with pytest.raises(WireError, match="no such method"):
                await side.handlers[row.name](Raw(b"{}"))
        else:
            assert await side.handlers[row.name](Raw(b"{}")) is None
    assert await side.handlers["initialized"](None) is None
    assert await side.side.snapshot() == ()
    side.side.close()
    assert side.mounted == 0


async def test_a_client_that_needs_it_is_served_in_order() -> None:
    side = Side({"textDocument": {"synchronization": {}}})
    side.library.result = raw([])
    await side.handlers["textDocument/didOpen"](Raw(b"{}"))
    assert await side.handlers["textDocument/codeAction"](Raw(b"{}")) == raw([])
    assert side.library.seen == ["textDocument/didOpen", "textDocument/codeAction"]
    assert side.mounted == 1


async def test_file_tools_see_the_documents_that_are_files() -> None:
    side = Side({"textDocument": {"synchronization": {}}})
    side.library.open = (OpenDocument("file:///a", "/a", 3, "text", True), OpenDocument("untitled:1", None, 1, "new"))
    assert await side.side.snapshot() == (OpenBuffer("/a", "text", 3, True),)


async def test_what_is_registered_is_registered_when_it_can_be_served() -> None:
    side = Side(DYNAMIC, registerCapability=None)
    await side.handlers["initialized"](None)
    ((method, params),) = side.client.asked
    assert (method, [one["method"] for one in params["registrations"]]) == (
        "client/registerCapability",
        ["textDocument/codeAction"],
    )


async def test_nothing_is_registered_that_cannot_be_served_or_need_not_be() -> None:
    broken = Side(DYNAMIC, ImportError("no such library"))
    await broken.handlers["initialized"](None)
    static = Side({"textDocument": {"codeAction": {}}})
    await static.handlers["initialized"](None)
    assert (broken.client.asked, static.client.asked) == ([], [])
    assert static.mounted == 0, "and nothing is imported for it"


@pytest.mark.parametrize("answer", [PeerError(ErrorObject(-32601, "what?")), PeerGoneError("gone")])
async def test_a_client_that_does_not_register_is_left_in_peace(answer: Exception, caplog: pytest.LogCaptureFixture) -> None:
    side = Side(DYNAMIC, registerCapability=answer)
    await side.handlers["initialized"](None)
    assert [record.message for record in caplog.records] == (
        ["the client refused to register code actions and commands: what? (-32601)"] if isinstance(answer, PeerError) else []
    )


async def test_the_end_answers_what_waits_and_begins_nothing() -> None:
    side = Side({"textDocument": {"synchronization": {}}})
    await side.handlers["textDocument/didOpen"](Raw(b"{}"))
    side.side.close()
    with pytest.raises(WireError, match="cancelled"):
        await side.handlers["textDocument/codeAction"](Raw(b"{}"))
    assert await side.side.snapshot() == ()
    await asyncio.sleep(0)
    assert side.mounted == 0
