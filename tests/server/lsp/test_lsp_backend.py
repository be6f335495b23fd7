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

from refold_protocol.rpc.initialize import InitializeParams
from refold_protocol.rpc.initialize_reply import initialize_result
from refold_protocol.rpc.language import COMMANDS, LanguageParams, WorkspaceFolder
from refold_protocol.rpc.lsp_types import Position, Range
from refold_protocol.rpc.wire_errors import ErrorObject, WireError
from refold_server.lsp import lsp_backend
from refold_server.lsp.lsp_backend import PyglsBackend
from refold_server.lsp.lsp_bridge import LANGUAGE_METHODS
from refold_server.lsp.selection_commands import ActionRequest
from tests.support.language import NotingFeatures, plain, raw

pytestmark = pytest.mark.anyio

URI = "file:///w/a%20b.txt"
LEFT_OUT = ("experimental", "notebookDocumentSync", "fileOperations")


class Backend:
    """pygls with doubles around it."""

    def __init__(self, params: LanguageParams | None = None) -> None:
        self.features = NotingFeatures()
        self.library = PyglsBackend(params or LanguageParams(), self.features.actions, self.features.run)

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
    """Invariant: What is offered of the language-server side is what pygls would build."""
    action: Any = {"codeActionLiteralSupport": {"codeActionKind": {"valueSet": []}}} if literals else {}
    capabilities: Any = {
        "general": {"positionEncodings": encodings},
        "textDocument": {"synchronization": {"didSave": True}, "codeAction": action},
        "workspace": {"applyEdit": True, "workspaceFolders": True, "executeCommand": {}},
    }
    params = {"processId": None, "rootUri": None, "capabilities": capabilities}
    ours = plain(initialize_result(msgspec.json.decode(raw(params), type=InitializeParams)))["capabilities"]
    built = plain(Backend().library.request("initialize", raw(params)))["capabilities"]
    if literals:  # pygls has no word on kinds
        assert ours.pop("codeActionProvider") != built.pop("codeActionProvider")
    assert ours["executeCommandProvider"].pop("workDoneProgress"), "pygls does not know that the progress is told"
    assert told(ours) == told(built)


async def test_every_method_of_the_table_has_a_handler_in_pygls(caplog: pytest.LogCaptureFixture) -> None:
    for row in LANGUAGE_METHODS.values():
        if row.kind == "request":
            assert Backend().refused(row.name, raw({})).code == -32602, "known, with wrong params"
    backend = Backend()
    backend.open("x")
    backend.library.notify("textDocument/didSave", raw({"textDocument": {"uri": URI}}))
    backend.library.notify("workspace/didChangeWorkspaceFolders", raw({"event": {"added": [], "removed": []}}))
    backend.library.notify("$/setTrace", raw({"value": "verbose"}))
    backend.library.notify("textDocument/didClose", raw({"textDocument": {"uri": URI}}))
    assert caplog.records == []


@pytest.mark.parametrize(("encoding", "column"), [("utf-8", 7), ("utf-16", 5), ("utf-32", 4)])
async def test_d06_a_change_behind_an_emoji_lands_there_in_each_encoding(encoding: str, column: int) -> None:
    backend = Backend(LanguageParams(encoding=encoding))
    backend.open('x="😋"\n')
    backend.change(part((0, column), (0, column), "Z"))
    assert backend.text == 'x="😋Z"\n'
    assert backend.library.documents()[0].version == 2


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", ""])
async def test_d06_a_change_past_the_end_of_a_line_is_made_before_its_break(end: str) -> None:
    backend = Backend()
    backend.open(f"😋😋{end}")
    backend.change(part((0, 999), (0, 999), "Z"))
    assert backend.text == f"😋😋Z{end}"


async def test_d06_a_change_inside_a_pair_is_made_before_it() -> None:
    backend = Backend()
    backend.open("😋😋")
    backend.change(part((0, 1), (0, 1), "a"), part((0, 4), (0, 4), "b"))
    assert backend.text == "a😋b😋"


async def test_d06_a_change_over_two_lines_takes_the_break_between_them() -> None:
    backend = Backend()
    backend.open("one\r\ntwo\r\nthree")
    backend.change(part((0, 2), (1, 1), "-"), part((1, 0), (1, 5), "3"))
    assert backend.text == "on-wo\r\n3"


async def test_lines_end_where_lsp_says_and_not_where_python_says() -> None:
    backend = Backend()
    backend.open("a\x0cb\u2028c\x85d\ne")
    backend.change(part((1, 0), (1, 1), "E"))
    assert backend.text == "a\x0cb\u2028c\x85d\nE"


@pytest.mark.parametrize("change", [{"text": "new"}, {"text": "new", "range": None}])
async def test_a_change_without_a_range_replaces_the_whole_text(change: Any) -> None:
    backend = Backend()
    backend.open("old\ntext")
    backend.change(part((0, 0), (0, 0), "x"), change)
    assert backend.text == "new"


async def test_half_a_surrogate_pair_passes() -> None:
    backend = Backend()
    backend.open("a")
    backend.change(part((0, 1), (0, 1), "\ud83d"))
    assert backend.text == "a\ud83d"


async def test_a_surrogate_pair_that_comes_in_halves_is_one_character() -> None:
    backend = Backend()
    backend.open("ab\n")
    backend.change(part((0, 0), (0, 0), "\ud83d"))
    backend.change(part((0, 1), (0, 1), "\ude00"), version=3)
    backend.change(part((0, 4), (0, 4), "!"), version=4)
    assert backend.text == "\U0001f600ab!\n"


@pytest.mark.parametrize(
    "odd",
    [{"tags": [3]}, {"severity": 0}, {"message": {"kind": "markdown", "value": "m"}}, {"code": {}}, {"source": 7}],
)
async def test_of_the_diagnostics_of_other_servers_place_and_text_are_enough(odd: Any) -> None:
    backend = Backend()
    backend.open("one\n")
    diagnostics = [{"range": ASKING["range"], "message": "m"} | odd, {"message": "nowhere"}, 7]
    backend.library.request("textDocument/codeAction", raw(ASKING | {"context": {"diagnostics": diagnostics}}))
    assert backend.features.asked[-1][0].diagnostics == ("line 1: m",)


async def test_a_document_is_open_until_it_is_closed() -> None:
    backend = Backend()
    backend.open("one")
    backend.open("two", "untitled:1")
    first, second = backend.library.documents()
    assert (first.uri, first.path, first.text, first.version, first.saved) == (URI, "/w/a b.txt", "one", 1, False)
    assert (second.path, second.text) == (None, "two")
    backend.library.notify("textDocument/didClose", raw({"textDocument": {"uri": "file:///w/a b.txt"}}))
    assert backend.library.documents() == (second,)


async def test_a_document_is_saved_until_it_is_changed() -> None:
    backend = Backend()
    backend.open("one")
    backend.library.notify("textDocument/didSave", raw({"textDocument": {"uri": URI}}))
    assert backend.library.documents()[0].saved
    backend.change({"text": "two"})
    assert not backend.library.documents()[0].saved
    written = backend.library.documents()[0]
    backend.change({"text": "three"}, version=3)
    backend.library.saved(written)
    assert not backend.library.documents()[0].saved, "another version was written"
    backend.library.saved(backend.library.documents()[0])
    assert backend.library.documents()[0].saved
    backend.library.notify("textDocument/didClose", raw({"textDocument": {"uri": URI}}))
    backend.library.saved(written)
    assert backend.library.documents() == ()


@pytest.mark.parametrize(
    "params",
    [
        {"textDocument": {"uri": URI, "version": 2}, "contentChanges": [{"txt": "x"}]},
        {"textDocument": {"uri": URI, "version": "two"}, "contentChanges": [{"text": "x"}]},
        {"textDocument": {"uri": URI}},
    ],
)
async def test_a_document_whose_change_cannot_be_read_is_forgotten(params: Any, caplog: pytest.LogCaptureFixture) -> None:
    backend = Backend()
    backend.open("old")
    backend.library.notify("textDocument/didChange", raw(params))
    assert backend.library.documents() == ()
    assert "textDocument/didChange: $.textDocument.version" in caplog.text or "$.contentChanges" in caplog.text


@pytest.mark.parametrize("params", [None, Raw(b"[]"), Raw(b"5"), Raw(b"{}"), Raw(b'{"textDocument":5}'), Raw(b"[" * 200_000)])
@pytest.mark.parametrize("method", [name for name, row in LANGUAGE_METHODS.items() if row.kind == "notification"])
async def test_a_notification_that_makes_no_sense_is_logged_and_changes_nothing(
    method: str, params: Raw | None, caplog: pytest.LogCaptureFixture
) -> None:
    backend = Backend()
    backend.open("text")
    backend.library.notify(method, params)
    assert backend.text == "text"
    assert len(caplog.records) == 1


async def test_a_change_of_a_document_that_is_not_open_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    backend = Backend()
    backend.change({"text": "x"})
    assert [record.message.partition(":")[0] for record in caplog.records] == ["a notification failed"]


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
    backend = Backend()
    if path is None:  # pygls takes a number for a text; it names no file then
        assert backend.library.request("textDocument/codeAction", params) == raw([])
        return
    refusal = backend.refused("textDocument/codeAction", params)
    assert (refusal.code, plain(refusal.data)) == (-32602, {"path": path})


async def test_d05_commands_that_are_unknown_or_wrongly_asked_for_are_refused() -> None:
    backend = Backend()
    for params in ({"command": "refold.none"}, {"command": "refold.edit", "arguments": 5}, {}):
        assert backend.refused("workspace/executeCommand", raw(params)).code == -32602


async def test_a_method_that_pygls_has_no_handler_for_is_unknown() -> None:
    assert (
        Backend()
        .refused("textDocument/hover", raw({"textDocument": {"uri": URI}, "position": {"line": 0, "character": 0}}))
        .code
        == -32601
    )


async def test_code_actions_are_asked_of_the_daemon_with_what_the_client_said() -> None:
    backend = Backend()
    backend.open("text")
    backend.features.result = ("an action",)
    reported: Any = [{"range": ASKING["range"], "message": "undefined x"}]
    context: Any = {"diagnostics": reported, "only": ["quickfix", "refold.explain"]}
    assert backend.library.request("textDocument/codeAction", raw(ASKING | {"context": context})) == raw(["an action"])
    wanted = ActionRequest(URI, Range(Position(0, 0), Position(0, 1)), ("quickfix", "refold.explain"), ("line 1: undefined x",))
    assert backend.features.asked == [(wanted, backend.library.documents())]


async def test_a_command_is_run_later_with_its_arguments_as_they_came() -> None:
    backend = Backend()
    for command in COMMANDS:
        given = {"jsonrpc": "2.0", "id": 1, "method": "x", "class": 1, "type_name": "y"}
        work = backend.library.request("workspace/executeCommand", raw({"command": command, "arguments": [given, 2]}))
        assert callable(work)
        assert backend.features.ran == []
        assert await work() == {"ran": command}
        assert backend.features.ran.pop() == (command, (given, 2))
    for none in ({"command": COMMANDS[0]}, {"command": COMMANDS[0], "arguments": None}):
        work = backend.library.request("workspace/executeCommand", raw(none))
        assert callable(work)
        await work()
        assert backend.features.ran.pop() == (COMMANDS[0], ())


async def test_a_fault_of_a_handler_is_ours_and_its_traceback_stays_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    backend = Backend()
    backend.features.result = ZeroDivisionError("secret detail")
    refusal = backend.refused("textDocument/codeAction", raw(ASKING))
    assert refusal.code == -32603
    assert "secret" not in refusal.message + str(refusal.data)
    assert "secret detail" in caplog.text


async def test_a_handler_that_gives_no_reply_is_a_fault_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = Backend()

    def silent(*given: Any) -> None:
        pass

    monkeypatch.setattr(backend.library._server.protocol, "_handle_request", silent)  # pyright: ignore[reportPrivateUsage]
    assert backend.refused("textDocument/codeAction", raw(ASKING)).code == -32603


async def test_no_future_of_a_message_is_kept() -> None:
    """pygls 2.1 keeps that of every notification."""
    backend = Backend()
    backend.open("")
    for number in range(100):
        backend.change({"text": str(number)}, version=number)
        backend.library.request("textDocument/codeAction", raw(ASKING))
    protocol = backend.library._server.protocol  # pyright: ignore[reportPrivateUsage]
    assert protocol._request_futures == {}  # pyright: ignore[reportPrivateUsage]
    assert backend.library._replies._replies == {}  # pyright: ignore[reportPrivateUsage]


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
    assert Backend(params).library.folders() == folders


async def test_folders_come_and_go() -> None:
    backend = Backend(LanguageParams(folders=(WorkspaceFolder("file:///a", "a"), WorkspaceFolder("file:///b", "b"))))
    event = {"added": [{"uri": "file:///c", "name": "c"}], "removed": [{"uri": "file:///a", "name": "a"}]}
    backend.library.notify("workspace/didChangeWorkspaceFolders", raw({"event": event}))
    assert backend.library.folders() == ("/b", "/c")


async def test_what_pygls_says_by_itself_is_told_and_not_sent(caplog: pytest.LogCaptureFixture) -> None:
    backend = Backend()
    server = backend.library._server  # pyright: ignore[reportPrivateUsage]
    server.window_log_message(types.LogMessageParams(types.MessageType.Info, "secret"))
    assert [record.message for record in caplog.records] == [
        "pygls wanted to send window/logMessage to the client; it was not sent"
    ]


async def test_pygls_logs_no_messages_whatever_the_level_is(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        backend = Backend()
        backend.open("a secret")
        backend.library.request("textDocument/codeAction", raw(ASKING))
    assert caplog.records == []


def test_the_backend_is_the_only_file_that_imports_pygls() -> None:
    imports = re.compile(r"^\s*(from|import) (pygls|lsprotocol)\b", re.MULTILINE)
    root = Path(lsp_backend.__file__).parents[1]
    assert [path.name for path in sorted(root.rglob("*.py")) if imports.search(path.read_text())] == ["lsp_backend.py"]


def test_the_version_of_pygls_is_pinned_to_the_one_whose_private_parts_are_known() -> None:
    (pin,) = [text for text in requires("refold") or () if text.startswith("pygls")]
    assert sorted(pin.removeprefix("pygls").split(",")) == ["<2.2", ">=2.1.1"]
