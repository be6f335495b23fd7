"""Transactions, the gate around them, and a map that grows, here and in other processes."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import lmdb
import pytest

from refold_protocol.errors import LogBusyError, LogUnwritableError, SessionCorruptionError
from refold_storage.disk import filesystem_type
from refold_storage.environment import Environment
from refold_storage.store_opening import open_environment
from tests.support.store_child import StoreChild


def opened(folder: Path, *, map_bytes: int | None = 1 << 20, max_bytes: int | None = None) -> Environment:
    return open_environment(folder, now=1, map_bytes=map_bytes, max_bytes=max_bytes, create=True, filesystem=filesystem_type)


def put(environment: Environment, key: bytes, value: bytes) -> None:
    with environment.writing() as transaction:
        transaction.put(key, value, db=environment.databases.blobs)


def put_both(environment: Environment, one: bytes, two: bytes) -> None:
    with environment.writing() as transaction:
        transaction.put(one, b"value", db=environment.databases.blobs)
        transaction.put(two, b"value", db=environment.databases.blobs)


def get(environment: Environment, key: bytes) -> bytes | None:
    with environment.reading() as transaction:
        return transaction.get(key, db=environment.databases.blobs)


def test_what_is_committed_is_read(tmp_path: Path) -> None:
    environment = opened(tmp_path)
    before = environment.last_transaction()
    put(environment, b"key", b"value")
    assert get(environment, b"key") == b"value"
    assert environment.last_transaction() > before
    environment.close()


def test_a_write_that_raises_leaves_nothing_behind(tmp_path: Path) -> None:
    environment = opened(tmp_path)
    before = environment.last_transaction()
    with pytest.raises(lmdb.BadValsizeError):
        put_both(environment, b"key", b"k" * 1_000)
    assert get(environment, b"key") is None
    assert environment.last_transaction() == before
    put(environment, b"key", b"other")
    environment.close()


def test_a_read_transaction_shows_one_moment_and_is_closed_behind_its_block(tmp_path: Path) -> None:
    environment = opened(tmp_path)
    put(environment, b"key", b"old")
    with environment.reading() as transaction:
        writer = threading.Thread(target=put, args=(environment, b"key", b"new"))
        writer.start()
        writer.join()
        assert transaction.get(b"key", db=environment.databases.blobs) == b"old"
    with pytest.raises(KeyError), environment.reading():
        raise KeyError
    assert get(environment, b"key") == b"new"
    assert open_transactions(environment) == []
    environment.close()


def test_c_08_the_map_grows_only_when_no_transaction_is_open(tmp_path: Path) -> None:
    """C-08: the daemon waits until no transaction is open, then grows the map."""
    environment = opened(tmp_path)
    grown: list[bool] = []
    with environment.reading() as transaction:
        grower = threading.Thread(target=lambda: grown.append(environment.grow()))
        grower.start()
        for _ in range(2_000):
            os.sched_yield()
            assert transaction.get(b"key", db=environment.databases.blobs) is None
        assert environment.map_bytes == 1 << 20
        assert grower.is_alive()
    grower.join()
    assert grown == [True]
    assert environment.map_bytes == 2 << 20
    environment.close()


def test_c_08_a_full_map_is_an_error_until_it_grew(tmp_path: Path) -> None:
    environment = opened(tmp_path)
    with pytest.raises(lmdb.MapFullError):
        put(environment, b"key", bytes(3 << 20))
    assert get(environment, b"key") is None
    while True:
        try:
            put(environment, b"key", bytes(3 << 20))
            break
        except lmdb.MapFullError:
            assert environment.grow()
    assert environment.map_bytes == 4 << 20
    assert len(get(environment, b"key") or b"") == 3 << 20
    environment.close()


def test_growth_has_a_configured_end(tmp_path: Path) -> None:
    environment = opened(tmp_path, max_bytes=(3 << 20) + 100)
    assert environment.grow()
    assert environment.grow()
    assert environment.map_bytes == 3 << 20
    assert not environment.grow()
    environment.close()


def test_the_map_begins_at_the_end_of_its_growth_where_that_is_smaller(tmp_path: Path) -> None:
    environment = opened(tmp_path, map_bytes=None, max_bytes=2 << 20)
    assert environment.map_bytes == 2 << 20
    environment.close()


def test_an_unusable_environment_refuses_everything_and_says_why(tmp_path: Path) -> None:
    environment = opened(tmp_path)
    environment.mark_failed("first reason")
    environment.mark_failed("second reason")
    for use in (lambda: get(environment, b"k"), lambda: put(environment, b"k", b"v"), environment.last_transaction):
        with pytest.raises(LogUnwritableError, match="first reason"):
            use()


def test_a_page_that_is_not_what_it_should_be_is_told_as_damage(tmp_path: Path) -> None:
    """What LMDB raises would pass for a bug of refold, and end the daemon where a subscription meets it."""
    environment = opened(tmp_path)
    with pytest.raises(SessionCorruptionError, match=r"data file .* is damaged"), environment.reading():
        raise lmdb.CorruptedError("mdb_get")
    assert get(environment, b"key") is None
    environment.close()


def test_a_view_that_cannot_be_had_is_told_with_its_cause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = opened(tmp_path)

    class Refusing:
        def begin(self) -> None:
            raise lmdb.PanicError("mdb_txn_begin")

    with monkeypatch.context() as patch:
        patch.setattr(environment, "_environment", Refusing())
        with pytest.raises(LogUnwritableError, match="cannot be read: mdb_txn_begin"):
            get(environment, b"key")
    assert get(environment, b"key") is None
    environment.close()


@pytest.mark.parametrize("write_first", [False, True])
def test_a_process_follows_when_another_one_grew_the_map(tmp_path: Path, write_first: bool) -> None:
    environment = opened(tmp_path)
    with StoreChild("write", tmp_path, 3_000) as child:
        assert child.answer() == "-1"
        while (tmp_path / "data.mdb").stat().st_size <= environment.map_bytes:
            assert int(child.ask()) > 0
        if write_first:
            put(environment, b"key", b"value")
        assert get(environment, b"key") == (b"value" if write_first else None)
        assert environment.map_bytes > 1 << 20
    environment.close()


def never(size: int) -> bool:
    return False


def test_a_process_that_cannot_have_so_large_a_map_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = opened(tmp_path)
    with StoreChild("write", tmp_path, 3_000) as child:
        assert child.answer() == "-1"
        while (tmp_path / "data.mdb").stat().st_size <= environment.map_bytes:
            assert int(child.ask()) > 0
        with monkeypatch.context() as small:
            small.setattr("refold_storage.environment._fits_address_space", never)
            for use in (lambda: get(environment, b"k"), lambda: put(environment, b"k", b"v")):
                with pytest.raises(LogUnwritableError, match="ulimit -v"):
                    use()
        put(environment, b"key", b"value")
        assert get(environment, b"key") == b"value"
    environment.close()


class Watched:
    """LMDB's environment; notes whether anybody looks into the map while it is changed."""

    def __init__(self, real: lmdb.Environment, look: Callable[[], object]) -> None:
        self._real = real
        self._looker = threading.Thread(target=look)
        self._looks = threading.Event()
        self.disturbed = False

    def set_mapsize(self, size: int) -> None:
        self._looks.clear()
        self._looker.start()
        self.disturbed = self._looks.wait(0.2)
        self._real.set_mapsize(size)

    def __getattr__(self, name: str) -> object:
        if name == "info":
            self._looks.set()
        return getattr(self._real, name)

    def join(self) -> None:
        self._looker.join()


def test_c_08_nobody_looks_into_the_map_while_it_is_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Invariant: Nobody looks into LMDB's map while it is changed.

    Followers ask for the last transaction 40 times a second, and LMDB refuses that without a map.
    """
    environment = opened(tmp_path)
    for look in (environment.last_transaction, environment.figures):
        watched = Watched(vars(environment)["_environment"], look)
        with monkeypatch.context() as patch:
            patch.setattr(environment, "_environment", watched)
            assert environment.grow()
            watched.join()
        assert not watched.disturbed
    environment.close()


def test_the_slots_of_readers_that_died_are_freed_at_the_next_open(tmp_path: Path) -> None:
    """A second process keeps the store open meanwhile: the first to open it would find an empty table anyway."""
    environment = opened(tmp_path)
    with StoreChild("own", tmp_path) as bystander, StoreChild("pin", tmp_path) as child:
        assert bystander.answer() == "ready"
        assert child.answer() == "ready"
        child.kill()
        assert len(open_transactions(environment)) == 1
        environment.close()
        environment = opened(tmp_path)
        assert open_transactions(environment) == []
    environment.close()


def test_a_full_table_of_readers_is_cleared_of_the_dead_and_otherwise_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("refold_storage.store_opening.MAX_READERS", 2)
    environment = opened(tmp_path)
    with StoreChild("pin", tmp_path) as one, StoreChild("pin", tmp_path) as two:
        assert one.answer() == "ready"
        assert two.answer() == "ready"
        with pytest.raises(LogBusyError):
            get(environment, b"key")
        one.kill()
        assert get(environment, b"key") is None
    environment.close()


@pytest.mark.parametrize("how", ["removed", "moved", "replaced", "hidden"])
def test_nothing_is_written_to_a_file_that_has_lost_its_name(tmp_path: Path, how: str) -> None:
    """Invariant: Nothing is called durable that was written to a file without a name.

    LMDB would go on writing to it, and all of that would be told to be durable and vanish with the process.
    """
    folder = tmp_path / "store"
    environment = opened(folder)
    if how == "removed":
        shutil.rmtree(folder)
    elif how == "replaced":
        shutil.copy(folder / "data.mdb", folder / "copy")
        (folder / "copy").replace(folder / "data.mdb")
    else:
        folder.rename(tmp_path / "elsewhere")
        if how == "hidden":
            folder.touch()
    with pytest.raises(LogUnwritableError, match="removed, moved or replaced"), environment.writing():
        pass
    environment.close()


def test_whoever_writes_is_noted(tmp_path: Path) -> None:
    environment = opened(tmp_path)
    with StoreChild("write", tmp_path, 1) as child:
        assert child.answer() == "-1"
        assert child.ask() == "0"
        assert environment.note.read() == child.pid
    assert environment.note.read() is None  # it is gone
    environment.close()


def open_transactions(environment: Environment) -> list[str]:
    """The rows of LMDB's table of readers that stand for an open transaction."""
    return [row for row in environment.open_readers().split("\n")[1:] if row.strip() and not row.strip().endswith("-")]
