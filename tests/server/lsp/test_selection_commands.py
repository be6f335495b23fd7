"""What a command does between its argument and its reply: whose folder, which text, and who is told of a fault."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec import UNSET, Raw

from refold_protocol.errors import LogUnwritableError
from refold_protocol.rpc.language import EDIT, EXPLAIN
from refold_protocol.rpc.wire_errors import WireError
from refold_protocol.session.messages import Source, text_of
from refold_server.lsp import selection_commands
from refold_server.lsp.lsp_bridge import ClientProgress
from refold_server.lsp.selection_commands import MAX_MESSAGE, CommandResult, SelectionCommands, SelectionServices
from refold_server.lsp.text_positions import OpenDocument
from refold_server.rpc.progress import Progress
from refold_server.sessions.session_registry import Sessions
from tests.support.editor import span
from tests.support.language import NotingClient, Tasks
from tests.support.loop_host import ScriptedHost, ScriptedProvider, says
from tests.support.memory_store import MemoryStore

pytestmark = pytest.mark.anyio


class Bench:
    """SelectionCommands over a store in memory, with a provider that says what a test says."""

    def __init__(
        self,
        root: Path,
        sessions: Sessions,
        provider: ScriptedProvider,
        tasks: Tasks,
        *,
        own_progress: bool = False,
        waits: bool = False,
    ) -> None:
        self.file = root / "sub" / "a.txt"
        self.file.parent.mkdir()
        self.file.write_text("old\n")
        self.folders: tuple[str, ...] = (str(root),)
        self.sessions = sessions
        self.provider = provider
        self.tasks = tasks
        self.client = NotingClient()
        self.encoding, self.applies_edits, self.checks_versions = "utf-16", True, True
        self.open = OpenDocument(self.file.as_uri(), str(self.file), 1, "old\n")
        self.typed_meanwhile: str | None = None
        source = Source("client", "test")
        shown = ClientProgress(Progress(self.client.notify), self.client, tasks.spawn, own=own_progress)
        bench = SelectionServices(self, self._folders, self._sessions, source, self.client.notify, tasks.spawn, shown, waits)
        self.commands = SelectionCommands(bench)

    async def documents(self) -> tuple[OpenDocument, ...]:
        return (self.open,)

    async def saved(self, document: OpenDocument) -> None:
        pass

    async def request(self, method: str, params: object = None) -> Raw:
        return await self.client.request(method, params)

    async def _folders(self) -> tuple[str, ...]:
        return self.folders

    async def _sessions(self) -> Sessions:
        if self.typed_meanwhile is not None:
            self.open = OpenDocument(self.open.uri, self.open.path, 2, self.typed_meanwhile)
        return self.sessions

    async def run(self, command: str, **others: Any) -> CommandResult:
        return await self.commands.run(command, ({"uri": self.open.uri, "range": span((0, 0), (0, 3)), **others},))

    def asked(self) -> str:
        """Give the last thing that the model was asked."""
        return text_of(tuple(self.provider.requests[-1].messages())[-1].content)


@asynccontextmanager
async def benched(root: Path, *replies: str, own_progress: bool = False, waits: bool = False) -> AsyncGenerator[Bench]:
    tasks = Tasks()
    provider = ScriptedProvider(*(says(reply) for reply in replies))
    sessions = Sessions(MemoryStore(clock=lambda: 1_000), lambda folder: ScriptedHost(provider), tasks.spawn)
    yield Bench(root, sessions, provider, tasks, own_progress=own_progress, waits=waits)
    await tasks.done()


@pytest.mark.parametrize(
    ("folders", "folder", "shown"), [((".", "sub"), "sub", "a.txt"), ((".",), ".", "sub/a.txt"), ((), "sub", "a.txt")]
)
async def test_a_new_session_is_in_the_innermost_folder_that_has_the_document_or_in_its_own(
    tmp_path: Path, folders: tuple[str, ...], folder: str, shown: str
) -> None:
    async with benched(tmp_path, "It is old.") as bench:
        bench.folders = tuple(str(tmp_path / one) for one in folders)
        result = await bench.run(EXPLAIN, wait=True)
        live = bench.sessions.live(result.session)
        assert live is not None
        assert live.session_log.handle.record.cwd == str(tmp_path / folder)
        assert f"The selection is {shown}, line 1" in bench.asked()
        assert live.session_log.handle.record.summary.title == f"Explain {shown}:1"


async def test_the_text_is_taken_when_the_prompt_is_accepted_not_when_the_command_came(tmp_path: Path) -> None:
    async with benched(tmp_path, "It is new.") as bench:
        bench.typed_meanwhile = "new\n"
        await bench.run(EXPLAIN, wait=True)
        assert "```\nnew\n```" in bench.asked()


async def test_a_version_that_passes_while_the_session_is_opened_is_refused_and_nothing_is_asked(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        bench.typed_meanwhile = "new\n"
        with pytest.raises(WireError, match="version 2 now, not 1"):
            await bench.run(EXPLAIN, version=1)
        assert bench.provider.requests == []


async def test_a_command_goes_on_in_the_session_that_it_names(tmp_path: Path) -> None:
    async with benched(tmp_path, "One.", "Two.") as bench:
        first = await bench.run(EXPLAIN, wait=True)
        second = await bench.run(EXPLAIN, wait=True, session=first.session)
        assert (second.session, second.turn) == (first.session, 2)
        assert len(tuple(bench.provider.requests[-1].messages())) == 3


async def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        with pytest.raises(WireError, match=r"\$\.arguments\[0\]\.uri: untitled:1 names no file"):
            await bench.run(EXPLAIN, uri="untitled:1")


async def test_a_result_without_waiting_has_no_outcome_and_one_with_waiting_sends_no_message(tmp_path: Path) -> None:
    async with benched(tmp_path, "One.", "Two.") as bench:
        assert (await bench.run(EXPLAIN)).outcome is UNSET
        await bench.tasks.done()
        assert bench.client.notified == [("window/showMessage", {"type": 3, "message": "refold: One."})]
        waited = await bench.run(EXPLAIN, wait=True)
        assert waited.outcome is not UNSET
        assert (waited.outcome.text, waited.outcome.edit, waited.outcome.problem) == ("Two.", UNSET, UNSET)
        assert len(bench.client.notified) == 1


async def test_a_long_reply_is_shown_in_part_and_an_empty_one_is_said_to_be_empty(tmp_path: Path) -> None:
    async with benched(tmp_path, "x" * 10_000, "") as bench:
        for expected in (f"refold: {'x' * MAX_MESSAGE}", "refold: The reply has no text."):
            await bench.run(EXPLAIN)
            await bench.tasks.done()
            assert bench.client.notified.pop() == ("window/showMessage", {"type": 3, "message": expected})


async def test_an_edit_on_disk_is_told_with_its_path(tmp_path: Path) -> None:
    async with benched(tmp_path, "```replacement\nnew\n```") as bench:
        await bench.run(EDIT)
        await bench.tasks.done()
        assert bench.file.read_bytes() == b"new\n"
        message = f"refold edited {bench.file} on disk."
        assert bench.client.notified == [("window/showMessage", {"type": 3, "message": message})]


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (LogUnwritableError("the disk is full"), "refold: the disk is full"),
        (ZeroDivisionError("secret"), "refold: a fault of its own; its log has the details"),
    ],
)
async def test_a_fault_behind_the_reply_is_told_and_costs_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: Exception, said: str
) -> None:
    async def fails(*given: object, **named: object) -> None:
        raise failure

    async with benched(tmp_path, "```replacement\nnew\n```") as bench:
        monkeypatch.setattr(selection_commands, "apply_text_edit", fails)
        await bench.run(EDIT)
        await bench.tasks.done()
        assert bench.client.notified == [("window/showMessage", {"type": 1, "message": said})]


async def test_a_wait_that_is_cancelled_leaves_the_turn_and_edits_nothing(tmp_path: Path) -> None:
    async with benched(tmp_path, "```replacement\nnew\n```") as bench:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await bench.run(EDIT, wait=True)
        assert scope.cancelled_caught
        assert bench.file.read_bytes() == b"old\n"
