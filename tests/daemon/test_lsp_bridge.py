"""The language-server side as a whole daemon: documents, the order of what comes before it is there, beginnings and ends."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.support.daemons import Place
from tests.support.editor import CAPABILITIES, DISK, READ, SAID, SEARCH, UNSAVED, Editor, editing, part, span


def test_read_file_sees_unsaved_text_until_it_is_saved_or_closed(place: Place) -> None:
    """Invariant: What is unsaved in an editor is what file tools see, and an edit is made where the text is."""
    place.script(*[READ, SAID] * 4, SEARCH, SAID)
    with editing(place) as editor:
        editor.begin()
        session = editor.session()
        editor.open(DISK)
        editor.prompt(session, "read it")
        editor.change(part((1, 4), (1, 9), "lion"), version=2)
        editor.prompt(session, "read it")
        (place.workspace / "animals.txt").write_text("a horse\nthe lion sleeps\n")
        editor.save()
        editor.prompt(session, "read it")
        editor.change("only here: zebra\n", version=3)
        editor.close()
        editor.prompt(session, "read it")
        editor.open("a zebra in the editor\n")
        editor.prompt(session, "search it")
        first, second, third, fourth, search = editor.results(session)
        assert first == "1\ta horse\n2\tthe zebra sleeps"
        assert second == f"1\ta horse\n2\tthe lion sleeps\n{UNSAVED}"
        assert third == fourth == "1\ta horse\n2\tthe lion sleeps"
        assert search.split("\n")[0] == "animals.txt:1: a zebra in the editor"
        assert "unsaved text of an editor, the disk has another: animals.txt" in search
        assert editor.end() == 0


@pytest.mark.parametrize(
    ("encodings", "chosen", "column"), [(["utf-8", "utf-16"], "utf-8", 7), (None, "utf-16", 5), (["utf-32"], "utf-32", 4)]
)
def test_d06_a_change_behind_an_emoji_is_what_read_file_shows(place: Place, encodings: Any, chosen: str, column: int) -> None:
    place.script(READ, SAID)
    with editing(place) as editor:
        editor.begin(CAPABILITIES | {"general": {"positionEncodings": encodings}})
        assert editor.capabilities["positionEncoding"] == chosen
        editor.open('x="😋"\r\nlast')
        editor.change(part((0, column), (0, column), "Z"), part((1, 99), (1, 99), "!"), version=2)
        session = editor.session()
        editor.prompt(session, "read it")
        assert editor.results(session) == [f'1\tx="😋Z"\n2\tlast!\n{UNSAVED}']


def test_messages_that_come_at_once_wait_and_are_served_in_order(place: Place) -> None:
    """Everything in one write, before the library is there, or even asyncio."""
    place.script(READ, SAID)
    with editing(place) as editor:
        document = {"uri": editor.uri, "languageId": "text", "version": 1, "text": "one\n"}
        asked: Any = {"textDocument": {"uri": editor.uri}, "range": span((0, 0), (0, 3)), "context": {"diagnostics": []}}
        messages: list[Any] = [{"method": "initialized", "params": {}}]
        messages += [{"method": "textDocument/didOpen", "params": {"textDocument": document}}]
        for version in range(2, 60):
            change = {"textDocument": {"uri": editor.uri, "version": version}, "contentChanges": [part((0, 0), (0, 0), "x")]}
            messages += [{"method": "textDocument/didChange", "params": change}]
            messages += [{"id": f"a{version}", "method": "textDocument/codeAction", "params": asked}]
        messages += [{"id": "open", "method": "session/open", "params": {"cwd": str(place.workspace)}}]
        editor.process.put(editor.initialize_message(CAPABILITIES), *({"jsonrpc": "2.0"} | message for message in messages))
        for version in range(2, 60):
            actions = editor.process.reply(f"a{version}")["result"]
            assert {action["command"]["arguments"][0]["version"] for action in actions} == {version}
        session = editor.process.reply("open")["result"]["session"]
        editor.prompt(session, "read it")
        assert editor.results(session) == [f"1\t{'x' * 58}one\n{UNSAVED}"]


def test_native_methods_are_served_while_documents_wait(place: Place) -> None:
    """Nobody waits for what a didOpen says, so a whole turn without file tools goes by before the library is even begun;
    without the opener's words on what is open, which wait."""
    place.script(SAID, more="[prefix]\neditor = false\n")
    with editing(place, "-c", LATE) as editor:
        editor.begin()
        editor.open(DISK)
        editor.prompt(editor.session(), "say something")
        assert editor.end() == 0
        assert b"pygls" not in editor.process.errors


LATE = """
import sys
from refold_server.lsp import lsp_bridge
from refold_server.main import main
lsp_bridge.LATER_S = 3600
sys.argv[1:] = ["serve"]
sys.addaudithook(lambda event, given: event == "import" and given[0] == "pygls" and sys.stderr.write("pygls"))
sys.exit(main())
"""
"""A daemon in which the import waits until somebody waits for an answer, and that tells when it comes."""


def test_d05_requests_with_wrong_params_get_one_reply_each_that_names_the_place(place: Place) -> None:
    wrong: list[tuple[str, Any, int, str]] = [
        ("textDocument/codeAction", {}, -32602, "$.textDocument"),
        ("textDocument/codeAction", None, -32602, "$.textDocument"),
        (
            "textDocument/codeAction",
            {"textDocument": {"uri": "u"}, "range": {}, "context": {"diagnostics": []}},
            -32602,
            "$.range.start",
        ),
        ("workspace/executeCommand", {"command": "none"}, -32602, "$"),
        ("workspace/executeCommand", {"command": "refold.fix"}, -32602, "$.arguments"),
        ("workspace/executeCommand", {"command": "refold.fix", "arguments": [{"uri": 5}]}, -32602, "$.arguments[0].uri"),
        ("textDocument/hover", {}, -32601, ""),
    ]
    with editing(place) as editor:
        editor.begin()
        for method, params, code, path in wrong:
            error = editor.call(method, params)
            assert (error["code"], error.get("data", {}).get("path", "")) == (code, path), error
        editor.process.put(
            b'{"jsonrpc":"2.0","id":"deep","method":"textDocument/codeAction","params":%s}' % (b"[" * 900 + b"]" * 900)
        )
        assert editor.process.reply("deep")["error"]["code"] == -32602
        editor.process.notify("textDocument/didChange", {"textDocument": 5})
        editor.open("still here\n")
        assert len(editor.actions((0, 0), (0, 5))) == 3
        assert editor.told == []
        assert editor.end() == 0


def imports(editor: Editor) -> set[str]:
    """Give the packages of which the interpreter told on standard error, once the process has ended."""
    lines = editor.process.errors.decode().split("\n")
    return {line.rpartition("|")[2].strip().partition(".")[0] for line in lines if line.startswith("import time:")}


@pytest.mark.parametrize("capabilities", [{}, {"textDocument": {"hover": {}}, "workspace": {"applyEdit": True}}])
def test_a_client_that_announces_nothing_of_it_never_imports_pygls_and_its_methods_are_unknown(
    place: Place, capabilities: Any
) -> None:
    """Invariant: A client that announced nothing of it never has pygls imported; nor has a run from the command line."""
    place.script(READ, SAID)
    with editing(place, "-X", "importtime") as editor:
        editor.begin(capabilities)
        assert not {"textDocumentSync", "codeActionProvider", "executeCommandProvider"} & set(editor.capabilities)
        editor.open("not known\n")
        assert editor.actions((0, 0), (0, 3))["code"] == -32601
        session = editor.session()
        editor.prompt(session, "read it")
        assert editor.results(session) == ["1\ta horse\n2\tthe zebra sleeps"]
        assert editor.end() == 0
        assert "lmdb" in imports(editor)
        assert not {"pygls", "lsprotocol", "cattrs", "attr"} & imports(editor)


def test_a_client_that_announces_documents_has_it_imported(place: Place) -> None:
    with editing(place, "-X", "importtime") as editor:
        editor.begin()
        assert editor.actions((0, 0), (0, 3)) != []
        assert editor.end() == 0
        assert {"pygls", "lsprotocol"} <= imports(editor)


STUCK = """
import sys, threading
from refold_server.lsp import lsp_bridge
from refold_server.main import main
def stuck(*given):
    sys.stderr.write("importing\\n")
    threading.Event().wait()
lsp_bridge.pygls_backend = stuck
sys.argv[1:] = ["serve"]
sys.exit(main())
"""
"""A daemon whose import never comes to an end."""


@pytest.mark.parametrize(("by", "code"), [("shutdown", 0), ("end of input", 1), ("exit", 1)])
@pytest.mark.parametrize("program", [STUCK, None], ids=["stuck", "real"])
def test_an_end_while_the_import_is_running_answers_what_waits_and_ends(
    place: Place, program: str | None, by: str, code: int
) -> None:
    with editing(place, *(() if program is None else ("-c", program))) as editor:
        editor.begin()
        editor.open(DISK)
        asked: Any = {"textDocument": {"uri": editor.uri}, "range": span((0, 0), (0, 0)), "context": {"diagnostics": []}}
        waiting = editor.process.request("textDocument/codeAction", asked)
        if program is not None:
            editor.process.error_line(b"importing")
        if by == "shutdown":
            assert editor.call("shutdown", None) is None
        if by == "end of input":
            editor.process.close_input()
        else:
            editor.process.notify("exit")
        reply = editor.process.reply(waiting)
        assert reply.get("result") == [] if program is None and "result" in reply else reply["error"]["code"] == -32800
        assert editor.process.wait() == code
        assert editor.process.errors == (b"" if program is None else b"importing\n")


def test_a_run_from_the_command_line_never_imports_pygls(place: Place) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "refold_server", "run", "Where is the zebra?"]
    done = subprocess.run(command, cwd=place.workspace, env=place.daemon_env, capture_output=True, check=True)
    assert b"animals.txt" in done.stdout
    assert b"lmdb" in done.stderr
    assert b"pygls" not in done.stderr
    assert b"lsprotocol" not in done.stderr


def test_what_a_client_registers_later_is_registered_once_it_can_be_served_and_not_offered_before(place: Place) -> None:
    capabilities = json.loads(json.dumps(CAPABILITIES))
    capabilities["textDocument"]["codeAction"]["dynamicRegistration"] = True
    capabilities["workspace"]["executeCommand"]["dynamicRegistration"] = True
    with editing(place) as editor:
        editor.begin(capabilities)
        assert not {"codeActionProvider", "executeCommandProvider"} & set(editor.capabilities)
        actions, commands = editor.until_asked("client/registerCapability")["registrations"]
        assert (actions["method"], commands["method"]) == ("textDocument/codeAction", "workspace/executeCommand")
        assert actions["registerOptions"]["documentSelector"] == [{"scheme": "file"}]
        assert commands["registerOptions"] == {"commands": ["refold.explain", "refold.fix", "refold.edit"]}
        assert type(editor.asked[0]["id"]) is int
        editor.open(DISK)
        assert len(editor.actions((0, 0), (1, 0))) == 3
        assert editor.end() == 0


def test_a_client_that_refuses_to_register_is_served_all_the_same(place: Place) -> None:
    capabilities = json.loads(json.dumps(CAPABILITIES))
    capabilities["textDocument"]["codeAction"]["dynamicRegistration"] = True
    with editing(place) as editor:
        editor.begin(capabilities)
        while not editor.process.messages:
            assert editor.process.read()
        (asked,) = editor.process.messages
        editor.process.messages.clear()
        editor.process.put({"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -32601, "message": "what?"}})
        editor.open(DISK)
        assert len(editor.actions((0, 0), (1, 0))) == 3
        assert editor.end() == 0
        assert b"refused to register code actions and commands: what? (-32601)" in editor.process.errors
