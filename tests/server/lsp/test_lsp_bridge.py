"""When the language-server side is there, and what the daemon gets of it."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from refold_protocol.rpc.initialize import InitializeParams
from refold_protocol.rpc.wire_errors import ErrorObject, WireError
from refold_server.lsp.lsp_bridge import LANGUAGE_METHODS, LspBridge
from refold_server.lsp.text_positions import OpenDocument
from refold_server.rpc.client_requests import PeerError, PeerGoneError
from refold_server.rpc.progress import Progress
from refold_server.tools.open_buffers import OpenBuffer
from refold_server.tools.tool_failure import ToolFailure
from tests.support.language import NotingClient, NotingLibrary, Tasks, raw

pytestmark = pytest.mark.anyio

DYNAMIC: Any = {"textDocument": {"codeAction": {"dynamicRegistration": True}}}


class Side:
    """A language-server side with doubles around it; `failure` is what making the backend raises."""

    def __init__(self, capabilities: Any, failure: Exception | None = None, **answers: Any) -> None:
        self.library = NotingLibrary()
        self.client = NotingClient(**answers)
        self.made = 0
        self._failure = failure
        tasks = Tasks()
        self.told: list[str] = []
        progress = Progress(self.client.notify)
        self.bridge = LspBridge(self.client, self._no_sessions, tasks.spawn, self._make, progress, self.told.append)
        given = raw({"capabilities": capabilities})
        self.bridge.begin(msgspec.json.decode(given, type=InitializeParams), given)
        self.handlers = self.bridge.handlers()

    def _make(self, *given: Any) -> NotingLibrary:
        self.made += 1
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
    assert await side.bridge.snapshot() == ()
    side.bridge.close()
    assert side.made == 0


async def test_a_client_that_needs_it_is_served_in_order() -> None:
    side = Side({"textDocument": {"synchronization": {}}})
    side.library.result = raw([])
    await side.handlers["textDocument/didOpen"](Raw(b"{}"))
    assert await side.handlers["textDocument/codeAction"](Raw(b"{}")) == raw([])
    assert side.library.seen == ["textDocument/didOpen", "textDocument/codeAction"]
    assert side.made == 1


async def test_file_tools_see_the_documents_that_are_files() -> None:
    side = Side({"textDocument": {"synchronization": {}}})
    side.library.open = (OpenDocument("file:///a", "/a", 3, "text", True), OpenDocument("untitled:1", None, 1, "new"))
    assert await side.bridge.snapshot() == (OpenBuffer("/a", "text", 3, True),)


DIRTY = OpenDocument("file:///w/a%20b", "/w/a b", 3, "1\n\ud83d2\n")
"""An open document; half a surrogate pair in it is the character that stands for it."""


def editable(*, applies: bool = True, **answers: Any) -> Side:
    """A side whose client has DIRTY open."""
    workspace: Any = {"applyEdit": applies, "workspaceEdit": {"documentChanges": True}}
    side = Side({"textDocument": {"synchronization": {}}, "workspace": workspace}, **answers)
    side.library.open = (OpenDocument("file:///w/other", "/w/other", 3, DIRTY.text), DIRTY)
    return side


async def test_a_tool_has_an_unsaved_file_edited_with_its_version_and_under_its_label() -> None:
    side = editable(applyEdit={"applied": True})
    _, buffer = await side.bridge.snapshot()
    await side.bridge.edit(buffer, "1\n\ufffd4\n", "refold: a b")
    ((method, params),) = side.client.asked
    assert (method, params["label"]) == ("workspace/applyEdit", "refold: a b")
    (edited,) = params["edit"]["documentChanges"]
    assert edited["textDocument"] == {"uri": DIRTY.uri, "version": 3}
    (edit,) = edited["edits"]
    assert edit["newText"] == "4"
    assert edit["range"] == {"start": {"line": 1, "character": 1}, "end": {"line": 1, "character": 2}}


async def test_a_tool_is_told_that_a_file_is_not_open_as_it_was() -> None:
    side = editable(applyEdit={"applied": True})
    _, buffer = await side.bridge.snapshot()
    for now in ((), (OpenDocument(DIRTY.uri, DIRTY.path, 4, DIRTY.text),), (OpenDocument(DIRTY.uri, DIRTY.path, 3, "x"),)):
        side.library.open = now
        with pytest.raises(ToolFailure) as caught:
            await side.bridge.edit(buffer, "x", "label")
        assert caught.value.code == "STALE"
        await side.bridge.saved(buffer)
    assert side.client.asked == []
    assert side.library.on_disk == []


async def test_a_tool_is_told_why_an_editor_did_not_edit() -> None:
    reason = {"applied": False, "failureReason": "it is read-only"}
    for side, said in (
        (editable(applyEdit=reason), "nothing was changed: the editor refused to edit a b: it is read-only"),
        (editable(applyEdit=PeerGoneError("gone")), "nothing was changed: the editor was asked to edit a b and failed: gone"),
        (editable(applies=False), "nothing was changed: a b has unsaved changes in an editor that cannot be asked to edit"),
    ):
        _, buffer = await side.bridge.snapshot()
        with pytest.raises(ToolFailure) as caught:
            await side.bridge.edit(buffer, "x", "label")
        assert caught.value.code == "TOOL_FAILED"
        assert caught.value.message.startswith(said)


async def test_a_client_with_nothing_open_has_nothing_to_edit_and_is_told_nothing() -> None:
    side = Side({})
    with pytest.raises(ToolFailure, match="changed or closed in the editor"):
        await side.bridge.edit(OpenBuffer("/a", "", 1), "x", "label")
    await side.bridge.saved(OpenBuffer("/a", "", 1))
    assert side.made == 0


async def test_a_tool_that_wrote_a_clean_files_disk_has_that_remembered() -> None:
    side = editable()
    _, buffer = await side.bridge.snapshot()
    await side.bridge.saved(buffer)
    assert side.library.on_disk == [DIRTY]


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
    assert static.made == 0, "and nothing is imported for it"


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
    side.bridge.close()
    with pytest.raises(WireError, match="cancelled"):
        await side.handlers["textDocument/codeAction"](Raw(b"{}"))
    assert await side.bridge.snapshot() == ()
    await asyncio.sleep(0)
    assert side.made == 0
