"""The list of sessions: pages that neither lose nor repeat a row, filters, cursors as text, the status that can be known."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold_protocol.errors import ConfigError
from refold_protocol.ids import InputId, SessionId
from refold_protocol.session.events import Draft, InputAccepted, SessionTitle
from refold_protocol.session.messages import Source, text_content
from refold_server.loop.instance import Host
from refold_server.sessions import prompt_search as prompts
from refold_server.sessions import session_list as listing
from refold_server.sessions.session_list import SessionListParams, page_of_sessions, read_cursor, session_row, write_cursor
from refold_server.sessions.session_registry import Sessions
from refold_storage.interface import NewSession
from tests.support.memory_store import MemoryStore
from tests.support.stores import HandClock, chunks

pytestmark = pytest.mark.anyio


def no_host(cwd: str) -> Host:
    raise AssertionError(f"a list needs no host, in {cwd}")


def no_work(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    raise AssertionError(f"a list starts nothing: {work}")


class Shelf:
    """A store in memory with sessions s0, s1, … of one millisecond each, closed, and what lists them."""

    def __init__(self) -> None:
        self.clock = HandClock(0)
        self.store = MemoryStore(clock=self.clock)
        self.sessions = Sessions(self.store, no_host, no_work)
        self._count = 0

    async def put(self, *titles: str | None, cwd: str = "/") -> None:
        """Put a session there for each title."""
        for title in titles:
            self.clock.now += 1
            handle = await self.store.create(NewSession(SessionId(f"s{self._count}"), cwd, self.clock.now))
            self._count += 1
            handle.append([Draft(InputAccepted(InputId("i"), "prompt", text_content("go"), Source("cli")))])
            if title is not None:
                handle.append([Draft(SessionTitle(title, Source("cli")))])
            await handle.close()

    @property
    def last(self) -> SessionId:
        """The session that was put there last."""
        return SessionId(f"s{self._count - 1}")

    async def pages(self, limit: int, **filters: Any) -> list[list[str]]:
        """The ids on all pages, each page begun with the text of the cursor before."""
        found: list[list[str]] = []
        cursor: str | None = None
        while True:
            before = None if cursor is None else read_cursor(cursor)
            page = await page_of_sessions(self.sessions, SessionListParams(limit, **filters), before)
            found.append([row.session for row in page.sessions])
            cursor = page.next
            if cursor is None:
                return found


@pytest.mark.parametrize("limit", [1, 2, 3, 6, 7, 8, 100])
async def test_pages_hold_every_session_once_in_order(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "CHUNK", 3)
    shelf = Shelf()
    await shelf.put(*[None] * 7)
    pages = await shelf.pages(limit)
    assert [one for page in pages for one in page] == [f"s{number}" for number in range(6, -1, -1)]
    assert all(len(page) == limit for page in pages[:-1])
    assert pages[-1] != []


async def test_a_page_looks_at_so_many_rows_only_and_the_next_one_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "LOOKED_AT", 4)
    shelf = Shelf()
    await shelf.put("rare", *["frequent"] * 9)
    assert await shelf.pages(5, text="rare") == [[], [], ["s0"]]


async def test_text_is_looked_for_in_titles_whatever_its_case() -> None:
    shelf = Shelf()
    await shelf.put("Straße nach Rom", "ROM", None, "anything")
    assert await shelf.pages(9, text="rom") == [["s1", "s0"]]
    assert await shelf.pages(9, text="STRASSE") == await shelf.pages(9, text="straße") == [["s0"]]
    assert await shelf.pages(9, text="") == [["s3", "s2", "s1", "s0"]]


@pytest.mark.parametrize("text", ["caf\u00e9", "cafe\u0301", "CAF\u00c9", "CAFE\u0301"])
async def test_a_letter_is_found_however_its_marks_are_put_to_it(text: str) -> None:
    shelf = Shelf()
    await shelf.put("Le caf\u00e9", "Le cafe\u0301", "Le cafe")
    one = await asked(shelf, "Au cafe\u0301?")
    two = await asked(shelf, "Au caf\u00e9?")
    assert await shelf.pages(9, text=text) == [[two, one, "s1", "s0"]]


@pytest.mark.parametrize("text", [".*", "[a", "(", "\\d+", "%", "_", "*", "^go", "go$", "a|b"])
async def test_text_means_itself_and_is_no_pattern(text: str) -> None:
    shelf = Shelf()
    await shelf.put("Title", f"x{text}y")
    one = await asked(shelf, f"one {text.upper()} two")
    assert await shelf.pages(9, text=text) == [[one, "s1"]]


async def asked(shelf: Shelf, *texts: str, mode: str = "prompt") -> SessionId:
    """A session that was asked these things, the first of which became its title."""
    await shelf.put("Title")
    session = shelf.last
    handle = await shelf.store.open(session, "write")
    for text in texts:
        handle.append([Draft(InputAccepted(InputId("i"), mode, text_content(text), Source("cli"))), *chunks(20)])
    await handle.close()
    return session


async def test_text_is_looked_for_in_prompts_and_steering_and_not_in_what_was_injected() -> None:
    shelf = Shelf()
    one = await asked(shelf, "Where is it?", "Über STRASSEN\nund Brücken")
    two = await asked(shelf, "and the bridges, brücken?", mode="steer")
    await asked(shelf, "brücken", mode="inject")
    assert await shelf.pages(9, text="brücken") == [[two, one]]
    assert await shelf.pages(9, text="straßen") == [[one]]
    assert await shelf.pages(9, text="word") == [[]], "what the model said is not searched"


async def test_what_was_read_is_kept_while_the_log_ends_there(monkeypatch: pytest.MonkeyPatch) -> None:
    shelf = Shelf()
    one = await asked(shelf, "first")
    reads: list[str] = []
    opened = shelf.store.open

    async def counted(session: SessionId, access: Any) -> Any:
        reads.append(access)
        return await opened(session, access)

    monkeypatch.setattr(shelf.store, "open", counted)
    for text in ("f", "fi", "fir", "second"):
        await shelf.pages(9, text=text)
    assert reads == ["read"]
    handle = await opened(one, "write")
    handle.append([Draft(InputAccepted(InputId("j"), "prompt", text_content("second"), Source("cli")))])
    await handle.close()
    assert await shelf.pages(9, text="second") == [[one]]
    assert reads == ["read"] * 2


async def test_what_is_kept_is_bounded_and_the_last_used_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompts, "KEPT_CHARACTERS", 25)
    shelf = Shelf()
    names = [await asked(shelf, f"prompt {number}") for number in range(3)]
    for text in ("prompt 1", "prompt 0", "nowhere"):
        assert (await shelf.pages(9, text=text))[0] == ([names[int(text[-1])]] if text[-1].isdigit() else [])
    records = [shelf.store.get(name) for name in names]
    assert [shelf.sessions.prompts.cost(record) > 0 for record in records] == [False, False, True]
    assert await shelf.sessions.prompts.hold(records[2], "prompt 2")
    assert shelf.sessions.prompts.cost(records[0]) > 0


async def test_a_page_reads_so_many_events_only_and_the_next_one_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "SEARCHED_EVENTS", 30)
    shelf = Shelf()
    rare = await asked(shelf, "rare")
    for _ in range(4):
        await asked(shelf, "frequent")
    assert await shelf.pages(5, text="rare") == [[], [], [rare]]
    assert await shelf.pages(5, text="rare") == [[rare]], "what is kept costs nothing"


async def test_a_session_that_goes_away_or_breaks_while_it_is_searched_is_left_out() -> None:
    shelf = Shelf()
    one = await asked(shelf, "needle")
    record = shelf.store.get(one)
    await shelf.store.delete(one)
    assert not await shelf.sessions.prompts.hold(record, "needle")


async def test_a_folder_keeps_its_own_sessions(tmp_path: Path) -> None:
    shelf = Shelf()
    await shelf.put(None, cwd=str(tmp_path))
    await shelf.put(None, cwd=f"{tmp_path}/below")
    assert await shelf.pages(9, cwd=str(tmp_path)) == [["s0"]]
    assert await shelf.pages(9, cwd=tmp_path.as_uri()) == [["s0"]]
    with pytest.raises(ConfigError):
        await shelf.pages(9, cwd="relative")


async def test_what_somebody_writes_runs_and_what_nobody_writes_is_idle() -> None:
    shelf = Shelf()
    await shelf.put(None)
    assert session_row(shelf.sessions, shelf.store.get(SessionId("s0"))).status == "idle"
    handle = await shelf.store.open(SessionId("s0"), "write")
    assert session_row(shelf.sessions, shelf.store.get(SessionId("s0"))).status == "running"
    await handle.close()


async def test_a_row_without_activity_of_its_own_has_the_time_of_its_creation() -> None:
    shelf = Shelf()
    handle = await shelf.store.create(NewSession(SessionId("s0"), "/", 5))
    handle.append([Draft(SessionTitle("t", Source("cli")), time=99)])
    await handle.close()
    row = session_row(shelf.sessions, shelf.store.get(SessionId("s0")))
    assert (row.created_at, row.title, row.turns) == (5, "t", 0)
    assert row.last_activity == (shelf.store.get(SessionId("s0")).summary.last_activity or 5)


@given(st.tuples(st.integers(0, 1 << 60), st.integers(0, 1 << 60)))
def test_a_cursor_that_was_written_is_read_again(cursor: tuple[int, int]) -> None:
    assert read_cursor(write_cursor(cursor)) == cursor


@pytest.mark.parametrize("text", ["1.18446744073709551616", "18446744073709551616.1", "1." + "9" * 5_000])
def test_a_number_that_no_page_ends_with_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\A"):
        read_cursor(text)


@given(st.text(alphabet="0123456789.-+ _e٣²", max_size=8))
def test_what_is_read_as_a_cursor_holds_two_numbers_and_all_else_is_refused(text: str) -> None:
    try:
        activity, number = read_cursor(text)
    except ValueError:
        return
    assert activity >= 0
    assert number >= 0
    assert set(text) <= set("0123456789.")
    assert text.count(".") == 1
