"""pygls behind our endpoint: what it is fed, what it must not do, and that its traps stay shut."""

from __future__ import annotations

import json
import logging
import re
from importlib.metadata import requires
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from lsprotocol import types
from msgspec import Raw

from refold_protocol.rpc.documents import Position, Range
from refold_protocol.rpc.errors import ErrorObject, WireError
from refold_protocol.rpc.initialize import InitializeParams, initialize_result
from refold_protocol.rpc.language import COMMANDS, LanguageParams, WorkspaceFolder
from refold_protocol.rpc.methods import LANGUAGE_METHODS
from refold_server.lsp import adapter
from refold_server.lsp.adapter import PyglsMounted
from refold_server.lsp.mounted import Asked, Deferred
from refold_server.rpc.peer import PeerError, PeerGoneError
from tests.support.language import NotingClient, NotingFeatures, Tasks, plain, raw

pytestmark = pytest.mark.anyio

URI = "file:///w/a%20b.txt"
LEFT_OUT = ("experimental", "notebookDocumentSync", "fileOperations")


class Mounting:
    """pygls, mounted with doubles around it."""

    def __init__(self, params: LanguageParams | None = None) -> None:
        self.features = NotingFeatures()
        self.client = NotingClient()
        self.tasks = Tasks()
        self.library = PyglsMounted(params or LanguageParams(), self.features, self.client, self.tasks.spawn)

    def open(self, text: str, uri: str = URI, version: int = 1) -> None:
        document = {"uri": uri, "languageId": "text", "version": version, "text": text}
        self.library.notify("textDocument/didOpen", raw({"textDocument": document}))

    def change(self, *changes: Any, uri: str = URI, version: int = 2) -> None:
        params = {"textDocument": {"uri": uri, "version": version}, "contentChanges": changes}
        self.library.notify("textDocument/didChange", Raw(json.dumps(params).encode()))

    def refused(self, method: str, params: Raw | None) -> ErrorObject:
        with pytest.raises(WireError) as refusal:
            self.library.request(method, params)
        return refusal.value.error

    @property
    def text(self) -> str:
        return self.library.documents()[0].text


def part(start: tuple[int, int], end: tuple[int, int], text: str) -> dict[str, Any]:
    places = ({"line": line, "character": character} for line, character in (start, end))
    return {"range": dict(zip(("start", "end"), places, strict=True)), "text": text}


ASKING: dict[str, Any] = {
    "textDocument": {"uri": URI},
    "range": part((0, 0), (0, 1), "")["range"],
    "context": {"diagnostics": []},
}


def told(value: Any) -> Any:
    """Leave out what says nothing: nulls, falsehoods, empty objects, and parts that pygls does not know or we do not serve."""
    if isinstance(value, dict):
        kept = {name: told(member) for name, member in cast("dict[str, Any]", value).items() if name not in LEFT_OUT}
        return {name: member for name, member in kept.items() if member not in (None, False, {})}
    return value


@pytest.mark.parametrize("encodings", [None, ["utf-8", "utf-16"], ["utf-7", "utf-32"]])
@pytest.mark.parametrize("literals", [True, False])
async def test_our_static_answer_is_what_pygls_would_build(encodings: Any, literals: bool) -> None:
    action: Any = {"codeActionLiteralSupport": {"codeActionKind": {"valueSet": []}}} if literals else {}
    capabilities: Any = {
        "general": {"positionEncodings": encodings},
        "textDocument": {"synchronization": {"didSave": True}, "codeAction": action},
        "workspace": {"applyEdit": True, "workspaceFolders": True, "executeCommand": {}},
    }
    params = {"processId": None, "rootUri": None, "capabilities": capabilities}
    ours = plain(initialize_result(msgspec.json.decode(raw(params), type=InitializeParams)))["capabilities"]
    built = plain(Mounting().library.request("initialize", raw(params)))["capabilities"]
    if literals:  # pygls has no word on kinds
        assert ours.pop("codeActionProvider") != built.pop("codeActionProvider")
    assert told(ours) == told(built)


async def test_every_method_of_the_table_has_a_handler_in_pygls(caplog: pytest.LogCaptureFixture) -> None:
    for row in LANGUAGE_METHODS.values():
        if row.kind == "request":
            assert Mounting().refused(row.name, raw({})).code == -32602, "known, with wrong params"
    mounting = Mounting()
    mounting.open("x")
    mounting.library.notify("textDocument/didSave", raw({"textDocument": {"uri": URI}}))
    mounting.library.notify("workspace/didChangeWorkspaceFolders", raw({"event": {"added": [], "removed": []}}))
    mounting.library.notify("$/setTrace", raw({"value": "verbose"}))
    mounting.library.notify("textDocument/didClose", raw({"textDocument": {"uri": URI}}))
    assert caplog.records == []


@pytest.mark.parametrize(("encoding", "column"), [("utf-8", 7), ("utf-16", 5), ("utf-32", 4)])
async def test_d06_a_change_behind_an_emoji_lands_there_in_each_encoding(encoding: str, column: int) -> None:
    mounting = Mounting(LanguageParams(encoding=encoding))
    mounting.open('x="😋"\n')
    mounting.change(part((0, column), (0, column), "Z"))
    assert mounting.text == 'x="😋Z"\n'
    assert mounting.library.documents()[0].version == 2


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", ""])
async def test_d06_a_change_past_the_end_of_a_line_is_made_before_its_break(end: str) -> None:
    mounting = Mounting()
    mounting.open(f"😋😋{end}")
    mounting.change(part((0, 999), (0, 999), "Z"))
    assert mounting.text == f"😋😋Z{end}"


async def test_d06_a_change_inside_a_pair_is_made_before_it() -> None:
    mounting = Mounting()
    mounting.open("😋😋")
    mounting.change(part((0, 1), (0, 1), "a"), part((0, 4), (0, 4), "b"))
    assert mounting.text == "a😋b😋"


async def test_d06_a_change_over_two_lines_takes_the_break_between_them() -> None:
    mounting = Mounting()
    mounting.open("one\r\ntwo\r\nthree")
    mounting.change(part((0, 2), (1, 1), "-"), part((1, 0), (1, 5), "3"))
    assert mounting.text == "on-wo\r\n3"


async def test_lines_end_where_lsp_says_and_not_where_python_says() -> None:
    mounting = Mounting()
    mounting.open("a\x0cb\u2028c\x85d\ne")
    mounting.change(part((1, 0), (1, 1), "E"))
    assert mounting.text == "a\x0cb\u2028c\x85d\nE"


@pytest.mark.parametrize("change", [{"text": "new"}, {"text": "new", "range": None}])
async def test_a_change_without_a_range_replaces_the_whole_text(change: Any) -> None:
    mounting = Mounting()
    mounting.open("old\ntext")
    mounting.change(part((0, 0), (0, 0), "x"), change)
    assert mounting.text == "new"


async def test_half_a_surrogate_pair_passes() -> None:
    mounting = Mounting()
    mounting.open("a")
    mounting.change(part((0, 1), (0, 1), "\ud83d"))
    assert mounting.text == "a\ud83d"


async def test_a_document_is_open_until_it_is_closed() -> None:
    mounting = Mounting()
    mounting.open("one")
    mounting.open("two", "untitled:1")
    first, second = mounting.library.documents()
    assert (first.uri, first.path, first.text, first.version, first.saved) == (URI, "/w/a b.txt", "one", 1, False)
    assert (second.path, second.text) == (None, "two")
    mounting.library.notify("textDocument/didClose", raw({"textDocument": {"uri": "file:///w/a b.txt"}}))
    assert mounting.library.documents() == (second,)


async def test_a_document_is_saved_until_it_is_changed() -> None:
    mounting = Mounting()
    mounting.open("one")
    mounting.library.notify("textDocument/didSave", raw({"textDocument": {"uri": URI}}))
    assert mounting.library.documents()[0].saved
    mounting.change({"text": "two"})
    assert not mounting.library.documents()[0].saved
    written = mounting.library.documents()[0]
    mounting.change({"text": "three"}, version=3)
    mounting.library.saved(written)
    assert not mounting.library.documents()[0].saved, "another version was written"
    mounting.library.saved(mounting.library.documents()[0])
    assert mounting.library.documents()[0].saved
    mounting.library.notify("textDocument/didClose", raw({"textDocument": {"uri": URI}}))
    mounting.library.saved(written)
    assert mounting.library.documents() == ()


@pytest.mark.parametrize(
    "params",
    [
        {"textDocument": {"uri": URI, "version": 2}, "contentChanges": [{"txt": "x"}]},
        {"textDocument": {"uri": URI, "version": "two"}, "contentChanges": [{"text": "x"}]},
        {"textDocument": {"uri": URI}},
    ],
)
async def test_a_document_whose_change_cannot_be_read_is_forgotten(params: Any, caplog: pytest.LogCaptureFixture) -> None:
    mounting = Mounting()
    mounting.open("old")
    mounting.library.notify("textDocument/didChange", raw(params))
    assert mounting.library.documents() == ()
    assert "textDocument/didChange: $.textDocument.version" in caplog.text or "$.contentChanges" in caplog.text


@pytest.mark.parametrize("params", [None, Raw(b"[]"), Raw(b"5"), Raw(b"{}"), Raw(b'{"textDocument":5}'), Raw(b"[" * 200_000)])
@pytest.mark.parametrize("method", [name for name, row in LANGUAGE_METHODS.items() if row.kind == "notification"])
async def test_a_notification_that_makes_no_sense_is_logged_and_changes_nothing(
    method: str, params: Raw | None, caplog: pytest.LogCaptureFixture
) -> None:
    mounting = Mounting()
    mounting.open("text")
    mounting.library.notify(method, params)
    assert mounting.text == "text"
    assert len(caplog.records) == 1
    assert mounting.client.notified == []


async def test_a_change_of_a_document_that_is_not_open_is_logged_and_told_to_nobody(caplog: pytest.LogCaptureFixture) -> None:
    mounting = Mounting()
    mounting.change({"text": "x"})
    assert [record.message.partition(":")[0] for record in caplog.records] == ["a notification failed"]
    assert mounting.client.notified == []


@pytest.mark.parametrize(
    ("params", "path"),
    [
        (None, "$"),
        (Raw(b"[]"), "$.textDocument"),
        (raw({}), "$.textDocument"),
        (raw(ASKING | {"range": part((0, 0), (-1, 0), "")["range"]}), "$.range.end"),
        (raw(ASKING | {"textDocument": {"uri": 5}}), None),
        (raw(ASKING | {"range": {"start": {"line": 0}}}), "$.range.start.character"),
        (
            raw(ASKING | {"range": {"start": {"line": 0, "character": "x"}, "end": {"line": 0, "character": 1}}}),
            "$.range.start.character",
        ),
        (raw(ASKING | {"context": None}), "$.context"),
        (raw(ASKING | {"context": {"diagnostics": 5}}), "$.context.diagnostics"),
    ],
)
async def test_d05_a_request_with_wrong_params_is_refused_with_the_place(params: Raw | None, path: str | None) -> None:
    mounting = Mounting()
    if path is None:  # pygls takes a number for a text; it names no file then
        assert mounting.library.request("textDocument/codeAction", params) == ()
        return
    refusal = mounting.refused("textDocument/codeAction", params)
    assert (refusal.code, plain(refusal.data)) == (-32602, {"path": path})


async def test_d05_commands_that_are_unknown_or_wrongly_asked_for_are_refused() -> None:
    mounting = Mounting()
    for params in ({"command": "refold.none"}, {"command": "refold.edit", "arguments": 5}, {}):
        assert mounting.refused("workspace/executeCommand", raw(params)).code == -32602


async def test_a_method_that_pygls_has_no_handler_for_is_unknown() -> None:
    assert (
        Mounting()
        .refused("textDocument/hover", raw({"textDocument": {"uri": URI}, "position": {"line": 0, "character": 0}}))
        .code
        == -32601
    )


async def test_code_actions_are_asked_of_the_daemon_with_what_the_client_said() -> None:
    mounting = Mounting()
    mounting.open("text")
    mounting.features.result = ("an action",)
    reported: Any = [{"range": ASKING["range"], "message": "undefined x"}]
    context: Any = {"diagnostics": reported, "only": ["quickfix", "refold.explain"]}
    assert mounting.library.request("textDocument/codeAction", raw(ASKING | {"context": context})) == ("an action",)
    wanted = Asked(URI, Range(Position(0, 0), Position(0, 1)), ("quickfix", "refold.explain"), ("line 1: undefined x",))
    assert mounting.features.asked == [(wanted, mounting.library.documents())]


async def test_a_command_is_run_later_with_its_arguments_as_they_came() -> None:
    mounting = Mounting()
    for command in COMMANDS:
        given = {"jsonrpc": "2.0", "id": 1, "method": "x", "class": 1, "type_name": "y"}
        deferred = mounting.library.request("workspace/executeCommand", raw({"command": command, "arguments": [given, 2]}))
        assert isinstance(deferred, Deferred)
        assert mounting.features.ran == []
        assert await deferred.run() == {"ran": command}
        assert mounting.features.ran.pop() == (command, (given, 2))
    for none in ({"command": COMMANDS[0]}, {"command": COMMANDS[0], "arguments": None}):
        deferred = mounting.library.request("workspace/executeCommand", raw(none))
        assert isinstance(deferred, Deferred)
        await deferred.run()
        assert mounting.features.ran.pop() == (COMMANDS[0], ())


async def test_a_fault_of_a_handler_is_ours_and_its_traceback_stays_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    mounting = Mounting()
    mounting.features.result = ZeroDivisionError("secret detail")
    refusal = mounting.refused("textDocument/codeAction", raw(ASKING))
    assert refusal.code == -32603
    assert "secret" not in refusal.message + str(refusal.data)
    assert "secret detail" in caplog.text


async def test_a_handler_that_gives_no_reply_is_a_fault_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    mounting = Mounting()

    def silent(*given: Any) -> None:
        pass

    monkeypatch.setattr(mounting.library._protocol, "_handle_request", silent)  # pyright: ignore[reportPrivateUsage]
    assert mounting.refused("textDocument/codeAction", raw(ASKING)).code == -32603


async def test_no_future_of_a_message_is_kept() -> None:
    """pygls 2.1 keeps that of every notification."""
    mounting = Mounting()
    mounting.open("")
    for number in range(100):
        mounting.change({"text": str(number)}, version=number)
        mounting.library.request("textDocument/codeAction", raw(ASKING))
    protocol = mounting.library._protocol  # pyright: ignore[reportPrivateUsage]
    assert protocol._request_futures == {}  # pyright: ignore[reportPrivateUsage]
    assert protocol.replies == {}


@pytest.mark.parametrize(
    ("params", "folders"),
    [
        (LanguageParams(), ()),
        (LanguageParams(root_uri="file:///r%20r"), ("/r r",)),
        (LanguageParams(root_path="/r r"), ("/r r",)),
        (LanguageParams(root_path="relative"), ()),
        (LanguageParams(folders=(WorkspaceFolder("file:///a", "a"), WorkspaceFolder("vscode-vfs://b", "b"))), ("/a",)),
        (LanguageParams(folders=(WorkspaceFolder("file:///a", "a"),), root_uri="file:///r"), ("/a",)),
    ],
)
async def test_folders_are_those_that_initialize_named(params: LanguageParams, folders: tuple[str, ...]) -> None:
    assert Mounting(params).library.folders() == folders


async def test_folders_come_and_go() -> None:
    mounting = Mounting(LanguageParams(folders=(WorkspaceFolder("file:///a", "a"), WorkspaceFolder("file:///b", "b"))))
    event = {"added": [{"uri": "file:///c", "name": "c"}], "removed": [{"uri": "file:///a", "name": "a"}]}
    mounting.library.notify("workspace/didChangeWorkspaceFolders", raw({"event": event}))
    assert mounting.library.folders() == ("/b", "/c")


async def asked_by_pygls(mounting: Mounting, outcome: Any) -> Any:
    """Have pygls ask the client for its folders; give what it makes of the answer."""
    mounting.client.answers["workspaceFolders"] = outcome
    server = mounting.library._server  # pyright: ignore[reportPrivateUsage]
    asking = server.workspace_workspace_folders(None)
    await mounting.tasks.done()
    return asking


async def test_what_pygls_asks_goes_through_the_daemon_which_has_integer_ids() -> None:
    mounting = Mounting()
    asking = await asked_by_pygls(mounting, [{"uri": "file:///a", "name": "a"}])
    assert mounting.client.asked == [("workspace/workspaceFolders", None)]
    assert [folder.uri for folder in asking.result()] == ["file:///a"]
    refused = await asked_by_pygls(mounting, PeerError(ErrorObject(-32601, "not here")))
    assert "not here" in str(refused.exception())
    left = await asked_by_pygls(mounting, PeerGoneError("gone"))
    assert not left.done()


async def test_what_pygls_tells_goes_through_the_daemon() -> None:
    mounting = Mounting()
    server = mounting.library._server  # pyright: ignore[reportPrivateUsage]
    server.window_log_message(types.LogMessageParams(types.MessageType.Info, "é"))
    assert mounting.client.notified == [("window/logMessage", {"type": 3, "message": "é"})]


async def test_pygls_logs_no_messages_whatever_the_level_is(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        mounting = Mounting()
        mounting.open("a secret")
        mounting.library.request("textDocument/codeAction", raw(ASKING))
    assert caplog.records == []


def test_the_adapter_is_the_only_file_that_imports_pygls() -> None:
    imports = re.compile(r"^\s*(from|import) (pygls|lsprotocol)\b", re.MULTILINE)
    root = Path(adapter.__file__).parents[1]
    assert [path.name for path in sorted(root.rglob("*.py")) if imports.search(path.read_text())] == ["adapter.py"]


def test_the_version_of_pygls_is_pinned_to_the_one_whose_private_parts_are_known() -> None:
    (pin,) = [text for text in requires("refold") or () if text.startswith("pygls")]
    assert sorted(pin.removeprefix("pygls").split(",")) == ["<2.2", ">=2.1.1"]
