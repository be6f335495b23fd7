"""The order of what is asked of a library that is not there yet, and what happens where it never comes."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from msgspec import Raw

from refold_protocol.rpc.wire_errors import WireError
from refold_server.lsp import lsp_bridge
from refold_server.lsp.lsp_bridge import BURST, BackendQueue
from refold_server.lsp.text_positions import OpenDocument
from tests.support.language import NotingLibrary, raw

pytestmark = pytest.mark.anyio

NOTHING = Raw(b"{}")


@pytest.fixture(autouse=True)
def begins_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have nothing begin because some time passed."""
    monkeypatch.setattr(lsp_bridge, "LATER_S", 3600)


class Import:
    """An import that takes until the test lets it go on, and gives the library or fails."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.library = NotingLibrary()
        self.began = threading.Event()
        self.go_on = threading.Event()
        self._failure = failure
        self.queue = BackendQueue(self._make)
        self.queue.start()

    def _make(self) -> NotingLibrary:
        self.began.set()
        self.go_on.wait()
        if self._failure is not None:
            raise self._failure
        return self.library

    async def there(self) -> None:
        """Let it come, and wait until it has caught up."""
        self.go_on.set()
        await self.queue.in_turn(lambda library: None)


def importing_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "refold-lsp"]


async def test_what_is_asked_before_the_library_is_there_is_done_in_order_when_it_is() -> None:
    importing = Import()
    queue = importing.queue
    queue.notify("one", NOTHING)
    first = asyncio.create_task(queue.request("two", NOTHING))
    await asyncio.sleep(0)
    queue.notify("three", NOTHING)
    reading = asyncio.create_task(queue.documents())
    await asyncio.sleep(0)
    queue.notify("four", NOTHING)
    assert importing.library.seen == []
    importing.library.open = (OpenDocument("file:///a", "/a", 1, "text"),)
    await importing.there()
    assert importing.library.seen == ["one", "two", "three", "documents", "four"]
    assert await first == raw(None)
    assert await reading == importing.library.open


async def test_more_than_a_burst_waits_in_order_and_newcomers_stay_behind_it() -> None:
    importing = Import()
    names = [f"n{number}" for number in range(3 * BURST)]
    for name in names:
        importing.queue.notify(name, NOTHING)
    importing.queue.notify("last", NOTHING)
    await importing.there()
    importing.queue.notify("new", NOTHING)
    assert importing.library.seen == [*names, "last", "new"]


async def test_what_comes_while_others_still_wait_does_not_overtake_them() -> None:
    importing = Import()
    for number in range(3 * BURST):
        importing.queue.notify(f"n{number}", NOTHING)
    first = asyncio.create_task(importing.queue.in_turn(lambda library: importing.queue.notify("caused", NOTHING)))
    await asyncio.sleep(0)
    importing.queue.notify("after", NOTHING)
    await first_done(importing, first)
    assert importing.library.seen[-2:] == ["after", "caused"]


async def first_done(importing: Import, first: asyncio.Task[None]) -> None:
    importing.go_on.set()
    await first
    await importing.there()


async def test_once_it_is_there_nothing_waits_a_turn_of_the_loop() -> None:
    importing = Import()
    await importing.there()
    importing.queue.notify("now", NOTHING)
    assert importing.library.seen == ["now"]


async def test_nothing_is_imported_before_somebody_waits_or_the_time_has_come(monkeypatch: pytest.MonkeyPatch) -> None:
    importing = Import()
    importing.queue.notify("one", NOTHING)
    assert not importing.began.is_set()
    waiting = asyncio.create_task(importing.queue.documents())
    await asyncio.to_thread(importing.began.wait)
    importing.go_on.set()
    await waiting
    monkeypatch.setattr(lsp_bridge, "LATER_S", 0)
    later = Import()
    await asyncio.to_thread(later.began.wait)
    await later.there()


async def test_it_is_imported_once_however_many_wait() -> None:
    importing = Import()
    waiting = [asyncio.create_task(importing.queue.documents()) for _ in range(5)]
    await asyncio.to_thread(importing.began.wait)
    (thread,) = importing_threads()
    assert thread.daemon, "the end of the process must not wait for it"
    importing.go_on.set()
    await asyncio.gather(*waiting)


async def test_a_library_that_cannot_be_loaded_refuses_requests_and_has_no_documents(caplog: pytest.LogCaptureFixture) -> None:
    importing = Import(ImportError("no such library"))
    waiting = asyncio.create_task(importing.queue.request("m", NOTHING))
    await asyncio.sleep(0)
    importing.queue.notify("n", NOTHING)
    importing.go_on.set()
    with pytest.raises(WireError) as refused:
        await waiting
    assert refused.value.error.code == -32603
    assert caplog.records[0].message.split(":")[0] in str(refused.value)
    assert await importing.queue.documents() == ()
    with pytest.raises(WireError, match="a fault of refold itself"):
        await importing.queue.request("m", NOTHING)


async def test_a_request_gives_what_the_library_gives_or_raises() -> None:
    importing = Import()
    await importing.there()
    importing.library.result = raw({"a": 1})
    assert await importing.queue.request("m", NOTHING) == raw({"a": 1})
    importing.library.result = ZeroDivisionError()
    with pytest.raises(ZeroDivisionError):
        await importing.queue.request("m", NOTHING)


async def test_a_commands_result_is_made_in_the_task_of_the_request() -> None:
    importing = Import()
    await importing.there()
    tasks: list[Any] = []

    async def work() -> str:
        tasks.append(asyncio.current_task())
        return "made"

    importing.library.result = work
    assert await importing.queue.request("m", NOTHING) == "made"
    assert tasks == [asyncio.current_task()]


async def test_a_request_that_was_cancelled_while_it_waited_is_not_asked() -> None:
    importing = Import()
    waiting = asyncio.create_task(importing.queue.request("m", NOTHING))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait({waiting})
    await importing.there()
    assert importing.library.seen == []
    assert waiting.cancelled()


async def test_a_notification_that_breaks_the_library_costs_itself_only(caplog: pytest.LogCaptureFixture) -> None:
    importing = Import()
    importing.queue.notify("broken", NOTHING)
    importing.queue.notify("good", NOTHING)
    await importing.there()
    assert importing.library.seen == ["broken", "good"]
    assert caplog.records[0].message == "broken"


async def test_the_end_of_the_connection_answers_what_waits_and_no_library_comes_after_it() -> None:
    importing = Import()
    importing.library.open = (OpenDocument("file:///a", "/a", 1, "text"),)
    asking = asyncio.create_task(importing.queue.request("m", NOTHING))
    reading = asyncio.create_task(importing.queue.documents())
    await asyncio.to_thread(importing.began.wait)
    importing.queue.close()
    assert await reading == ()
    with pytest.raises(WireError) as refused:
        await asking
    assert refused.value.error.code == -32800
    (thread,) = importing_threads()
    importing.go_on.set()
    await asyncio.to_thread(thread.join)
    await asyncio.sleep(0)
    assert await importing.queue.documents() == ()


async def test_an_end_before_the_import_began_leaves_it_undone() -> None:
    importing = Import()
    importing.queue.close()
    assert await importing.queue.documents() == ()
    assert not importing.began.is_set()
