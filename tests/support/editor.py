"""Editor for tests of whole daemons: LSP messages over real pipes, a document or two, answers to what it is asked."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from tests.support.daemons import SERVE, Place
from tests.support.processes import Process

CAPABILITIES: Any = {
    "textDocument": {"synchronization": {"didSave": True}, "codeAction": {"codeActionLiteralSupport": {}}},
    "workspace": {
        "applyEdit": True,
        "workspaceEdit": {"documentChanges": True},
        "workspaceFolders": True,
        "executeCommand": {},
    },
}
"""What a capable editor announces, of what refold uses."""


READ: Any = {"calls": [{"name": "read_file", "arguments": {"path": "animals.txt"}}]}
SEARCH: Any = {"calls": [{"name": "search_text", "arguments": {"pattern": "zebra"}}]}
SAID: Any = {"text": "Done."}
"""Replies of a script: calls of file tools, and a last word."""

DISK = "a horse\nthe zebra sleeps\n"
"""What animals.txt holds."""

UNSAVED = "[this is the unsaved text of the editor in which the file is open; the disk has another]"
"""How read_file says whose text it gives."""


class Editor:
    """A client with documents. What it is asked it answers by `answers`, by method; `asked` holds the requests themselves."""

    def __init__(self, place: Place, process: Process) -> None:
        self.place = place
        self.process = process
        self.uri = (place.workspace / "animals.txt").as_uri()
        self.answers: dict[str, Any] = {"workspace/applyEdit": {"applied": True}, "client/registerCapability": None}
        self.asked: list[Any] = []
        self.told: list[Any] = []
        self.capabilities: Any = None

    def initialize_message(self, capabilities: Any, **params: Any) -> Any:
        """Give the request with the id `initialize`."""
        options = {"store": str(self.place.store)}
        folders = [{"uri": self.place.workspace.as_uri(), "name": "ws"}]
        given: Any = {
            "processId": None,
            "capabilities": capabilities,
            "workspaceFolders": folders,
            "initializationOptions": options,
        }
        return {"jsonrpc": "2.0", "id": "initialize", "method": "initialize", "params": given | params}

    def begin(self, capabilities: Any = CAPABILITIES, **params: Any) -> None:
        """Begin the connection."""
        self.process.put(self.initialize_message(capabilities, **params))
        self.capabilities = self.process.reply("initialize")["result"]["capabilities"]
        self.process.notify("initialized", {})

    def open(self, text: str, *, version: int = 1, uri: str | None = None) -> None:
        """Open a document, animals.txt where no other is named."""
        document = {"uri": uri or self.uri, "languageId": "text", "version": version, "text": text}
        self.process.notify("textDocument/didOpen", {"textDocument": document})

    def change(self, *changes: Any, version: int) -> None:
        """Change animals.txt: by whole texts, or by `change` objects."""
        given: list[Any] = [change if isinstance(change, dict) else {"text": change} for change in changes]
        document = {"uri": self.uri, "version": version}
        self.process.notify("textDocument/didChange", {"textDocument": document, "contentChanges": given})

    def save(self) -> None:
        """Say that animals.txt is on disk."""
        self.process.notify("textDocument/didSave", {"textDocument": {"uri": self.uri}})

    def close(self, uri: str | None = None) -> None:
        """Close a document."""
        self.process.notify("textDocument/didClose", {"textDocument": {"uri": uri or self.uri}})

    def actions(self, start: tuple[int, int], end: tuple[int, int], uri: str | None = None) -> Any:
        """Ask for code actions on a selection; give the reply's result or error."""
        params: Any = {"textDocument": {"uri": uri or self.uri}, "range": span(start, end), "context": {"diagnostics": []}}
        return self.call("textDocument/codeAction", params)

    def argument(self, start: tuple[int, int], end: tuple[int, int], **others: Any) -> Any:
        """Give the argument of a command on a selection of animals.txt."""
        return {"uri": self.uri, "range": span(start, end), **others}

    def run(self, command: str, *arguments: Any) -> Any:
        """Run a command; give the reply's result or error."""
        return self.call("workspace/executeCommand", {"command": command, "arguments": arguments})

    def call(self, method: str, params: Any) -> Any:
        """Send a request, answer what comes meanwhile, and give the reply's result or error."""
        request_id = self.process.request(method, params)
        while True:
            for message in self._new():
                if "method" not in message and message["id"] == request_id:
                    return message.get("result", message.get("error"))
                self.process.messages.append(message)
            assert self.process.read(), f"the stream ended before the reply to {method}"

    def until_told(self, method: str) -> Any:
        """Wait for a notification and give its params."""
        while True:
            self._new()
            for place, message in enumerate(self.told):
                if message["method"] == method:
                    return self.told.pop(place)["params"]
            assert self.process.read(), f"the stream ended before {method}"

    def until_asked(self, method: str) -> Any:
        """Wait for a request and give its params; it is answered."""
        while True:
            self._new()
            for message in self.asked:
                if message["method"] == method:
                    return message["params"]
            assert self.process.read(), f"the stream ended before {method}"

    def session(self) -> str:
        """Begin a session; give its id."""
        return self.call("session/open", {"cwd": str(self.place.workspace)})["session"]

    def prompt(self, session: str, text: str) -> None:
        """Run a turn to its end."""
        content = [{"type": "text", "text": text}]
        turn = self.call("turn/start", {"session": session, "content": content})["turn"]
        end = self.call("turn/wait", {"session": session, "turn": turn})
        assert end["data"]["reason"] == {"kind": "completed"}, end

    def results(self, session: str) -> list[str]:
        """Give the texts of the session's tool results."""
        entries = self.call("session/read", {"session": session, "view": "transcript"})["entries"]
        return [entry["content"][0]["text"] for entry in entries if entry["kind"] == "tool"]

    def end(self) -> int:
        """Shut down and give the exit code."""
        assert self.call("shutdown", None) is None
        self.process.notify("exit")
        return self.process.wait()

    def _new(self) -> list[Any]:
        """Take what was read: requests are answered and noted, notifications noted, replies given."""
        messages, self.process.messages = self.process.messages, []
        replies: list[Any] = []
        for message in messages:
            if "method" not in message:
                replies.append(message)
            elif "id" in message:
                self.asked.append(message)
                answer = self.answers[message["method"]]
                self.process.put({"jsonrpc": "2.0", "id": message["id"], "result": answer})
            else:
                self.told.append(message)
        return replies


def on_disk(place: Place) -> str:
    """Give what animals.txt holds now."""
    return (place.workspace / "animals.txt").read_text()


def span(start: tuple[int, int], end: tuple[int, int]) -> Any:
    """Give a range."""
    ends = ({"line": line, "character": character} for line, character in (start, end))
    return dict(zip(("start", "end"), ends, strict=True))


def part(start: tuple[int, int], end: tuple[int, int], text: str) -> Any:
    """Give a change of a part of a document."""
    return {"range": span(start, end), "text": text}


@contextmanager
def editing(place: Place, *python: str) -> Generator[Editor]:
    """Start a daemon for an editor that has not begun yet; `python` are options of the interpreter, or `-c` and a program
    that takes the daemon's place."""
    variables = [f"{name}={value}" for name, value in place.daemon_env.items()]
    interpreter, *arguments = SERVE
    command = [interpreter, *python, *(() if "-c" in python else arguments)]
    with Process(["env", "-i", *variables, *command]) as process:
        yield Editor(place, process)
