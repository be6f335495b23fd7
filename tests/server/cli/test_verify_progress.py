"""How far a long check is, told by the real command: on a terminal beside the output, to nobody else, and never in the way."""

from __future__ import annotations

import os
import pty
import re

import anyio
import pytest

from refold_protocol.ids import SessionId
from refold_protocol.json_text import JsonText
from refold_protocol.session.events import Draft, ForeignData
from refold_server.cli import cli_verify
from refold_server.cli.terminal import PROGRESS_EVENTS
from refold_server.clock import epoch_ms, uuid7
from refold_storage.interface import NewSession
from refold_storage.lmdb_store import open_store
from tests.support.commands import Here, finish, start, there
from tests.support.daemons import Place

COUNT = PROGRESS_EVENTS + 5_000


@pytest.fixture
def long_session(place: Place) -> str:
    """A session of many events, none of which means anything here."""
    name = uuid7()

    async def write() -> None:
        store = await open_store(place.store, new_uuid=uuid7, clock=epoch_ms)
        handle = await store.create(NewSession(SessionId(name), str(place.workspace), epoch_ms()))
        note = ForeignData(JsonText('{"note":"nothing"}'))
        handle.append([Draft(note, type="test/note", ignorable=True) for _ in range(COUNT)])
        await store.close()

    anyio.run(write)
    return name


def test_a_long_check_tells_a_terminal_how_far_it_is_and_leaves_the_line_empty(place: Place, long_session: str) -> None:
    controller, end = pty.openpty()
    process = start(place, "verify", long_session, stderr=end)
    os.close(end)
    done = finish(process)
    told = os.read(controller, 65_536)
    os.close(controller)
    assert (done.code, done.lines) == (0, [f"verified 0/0 requests, {COUNT} events  {long_session}"])
    shares = [int(share) for share in re.findall(rb"\r *(\d+) % of 25000 events", told)]
    assert len(shares) > 3
    assert shares == sorted(shares)
    assert shares[-1] == 100
    assert told.endswith(b"\r\x1b[K")


def test_a_long_check_tells_a_pipe_nothing(place: Place, long_session: str) -> None:
    done = there(place, "verify", "--all", "--json")
    assert (done.code, done.err) == (0, "")
    assert [finding["session"] for finding in done.values] == [long_session]


def test_a_session_that_is_deleted_while_all_are_checked_is_left_out(
    refold: Here, long_session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def listed(context: object) -> list[SessionId]:
        assert context
        return [SessionId(uuid7()), SessionId(long_session)]

    monkeypatch.setattr(cli_verify, "_session_ids", listed)
    done = refold("verify", "--all")
    assert (done.code, done.err) == (0, "")
    assert done.lines[-1] == "1 session checked"
