"""Readers that were killed, or stopped, inside a read transaction: what they pin, for how long, and that writers go on.

LMDB uses a page again once no reader can see what stood on it. The count of pages in the file says whether it does.

Invariant: Readers that died or stopped hold no writer up, and what they pin is used again.
"""

from __future__ import annotations

import signal
from collections.abc import Generator
from pathlib import Path

import pytest

from refold_storage.disk import filesystem_type
from refold_storage.environment import Environment
from refold_storage.store_opening import open_environment
from tests.support.store_child import StoreChild

SIZE = 100_000


@pytest.fixture
def environment(tmp_path: Path) -> Generator[Environment]:
    made = open_environment(tmp_path, now=1, map_bytes=1 << 26, max_bytes=None, create=True, filesystem=filesystem_type)
    overwrite(made, 4)
    yield made
    made.close()


def overwrite(environment: Environment, times: int = 1) -> None:
    """Put another value in place of one of the same size."""
    for number in range(times):
        with environment.writing() as transaction:
            transaction.put(b"key", bytes([number]) * SIZE, db=environment.databases.blobs)


def growth(environment: Environment, times: int) -> int:
    """Bytes that the file grows by, for each of so many overwrites."""
    before = environment.figures().used_bytes
    overwrite(environment, times)
    return (environment.figures().used_bytes - before) // times


def test_without_readers_the_space_of_what_was_overwritten_is_used_again(environment: Environment) -> None:
    assert growth(environment, 10) < SIZE // 10


def test_a_killed_reader_pins_space_until_its_slot_is_freed_now_and_then(
    environment: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with StoreChild("pin", tmp_path) as child:
        assert child.answer() == "ready"
        assert growth(environment, 10) > SIZE // 2
        child.kill()
    assert growth(environment, 10) > SIZE // 2  # the dead still hold it
    monkeypatch.setattr("refold_storage.environment._READER_CHECK_SECONDS", 0.0)
    overwrite(environment, 2)
    assert growth(environment, 10) < SIZE // 10


def test_a_stopped_reader_holds_no_writer_up_and_its_space_is_used_again_once_it_goes_on(
    environment: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("refold_storage.environment._READER_CHECK_SECONDS", 0.0)
    with StoreChild("pin", tmp_path) as child:
        assert child.answer() == "ready"
        child.signal(signal.SIGSTOP)
        assert growth(environment, 10) > SIZE // 2  # it lives: nobody may take what it sees
        child.signal(signal.SIGCONT)
        assert child.ask() == ""
    overwrite(environment, 2)
    assert growth(environment, 10) < SIZE // 10
