"""A lease has one holder, whatever process asks, and dies with it."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import threading
from pathlib import Path

import pytest

from refold_protocol.errors import LogError, LogUnwritableError, SessionAlreadyOwnedError, StorageFullError
from refold_storage.lease import Holder, Holding, Leases, holdings, lease_name
from tests.support.store_child import StoreChild
from tests.support.stores import OTHER, SESSION, StoreKind

pytestmark = pytest.mark.anyio


@pytest.fixture
def leases(tmp_path: Path) -> Leases:
    return Leases(tmp_path, lambda: 1_234, "the test")


async def test_a_lease_is_refused_naming_its_holder(leases: Leases) -> None:
    lease = await leases.take(SESSION)
    with pytest.raises(SessionAlreadyOwnedError) as caught:
        await leases.take(SESSION)
    details = caught.value.details
    assert (details["pid"], details["since"], details["client"]) == (os.getpid(), 1_234, "the test")
    assert caught.value.message.endswith("; read or fork it meanwhile, or close it there")
    lease.release()
    lease.release()
    (await leases.take(SESSION)).release()


async def test_the_file_of_a_lease_stays_and_names_nobody_when_it_is_free(leases: Leases, tmp_path: Path) -> None:
    lease = await leases.take(SESSION)
    path = leases.path(SESSION)
    assert path.parent.parent == tmp_path / "leases"
    assert path.parent.name == path.name[:2]
    assert path.stat().st_mode & 0o777 == 0o600
    inode = path.stat().st_ino
    assert leases.is_held(SESSION)
    lease.release()
    assert not leases.is_held(SESSION)
    assert leases.holder(SESSION) is None
    assert (path.stat().st_ino, path.read_bytes()) == (inode, b"")


async def test_asking_makes_no_file(leases: Leases) -> None:
    assert not leases.is_held(SESSION)
    assert not leases.path(SESSION).parent.exists()


async def test_what_is_held_can_be_listed_without_knowing_the_sessions(leases: Leases, tmp_path: Path) -> None:
    assert holdings(tmp_path) == ()
    (await leases.take(OTHER)).release()
    lease = await leases.take(SESSION)
    holder = Holder(os.getpid(), 1_234, socket.gethostname(), "the test")
    assert holdings(tmp_path) == (Holding(lease_name(SESSION), holder),)
    lease.release()
    assert holdings(tmp_path) == ()


async def test_a_lease_that_names_nobody_is_listed_too(leases: Leases, tmp_path: Path) -> None:
    lease = await leases.take(SESSION)
    leases.path(SESSION).write_bytes(b'{"pid":')
    assert holdings(tmp_path) == (Holding(lease_name(SESSION)),)
    lease.release()


async def test_an_opener_outlasts_one_who_only_asks(leases: Leases) -> None:
    """Whoever asks holds the lock for an instant; here that instant ends while the opener tries."""
    (await leases.take(SESSION)).release()
    file = os.open(leases.path(SESSION), os.O_RDONLY)
    fcntl.flock(file, fcntl.LOCK_SH)
    timer = threading.Timer(0.005, os.close, [file])
    timer.start()
    (await leases.take(SESSION)).release()
    timer.join()


async def test_a_file_that_is_swept_away_before_it_is_locked_gives_no_lease(
    leases: Leases, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweeps = [leases.path(SESSION)]
    lock = fcntl.flock

    def swept(file: int, operation: int) -> None:
        while sweeps:
            sweeps.pop().unlink()
        lock(file, operation)

    monkeypatch.setattr("refold_storage.lease.fcntl.flock", swept)
    lease = await leases.take(SESSION)
    assert leases.is_held(SESSION)
    lease.release()


async def test_two_who_only_ask_do_not_take_each_other_for_an_owner(leases: Leases) -> None:
    (await leases.take(SESSION)).release()
    file = os.open(leases.path(SESSION), os.O_RDONLY)
    fcntl.flock(file, fcntl.LOCK_SH)
    assert not leases.is_held(SESSION)
    os.close(file)


async def test_a_lease_whose_file_says_nonsense_is_refused_without_a_name(leases: Leases) -> None:
    lease = await leases.take(SESSION)
    leases.path(SESSION).write_bytes(b"{half")
    with pytest.raises(SessionAlreadyOwnedError) as caught:
        await leases.take(SESSION)
    assert "pid" not in caught.value.details
    lease.release()


async def test_a_folder_that_cannot_hold_leases_is_named(tmp_path: Path) -> None:
    (tmp_path / "leases").write_bytes(b"a file")
    with pytest.raises(LogUnwritableError):
        await Leases(tmp_path, lambda: 1, "").take(SESSION)


@pytest.mark.parametrize(("number", "kind"), [(errno.ENOSPC, StorageFullError), (errno.EACCES, LogUnwritableError)])
async def test_a_disk_that_takes_no_lock_file_is_told_apart_by_its_reason(
    leases: Leases, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[LogError]
) -> None:
    def refuse(*arguments: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("refold_storage.lease.os.open", refuse)
    with pytest.raises(kind):
        await leases.take(SESSION)


async def test_a_lease_that_cannot_be_signed_holds_all_the_same(leases: Leases, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> int:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr("refold_storage.lease.os.pwrite", refuse)
    lease = await leases.take(SESSION)
    assert leases.is_held(SESSION)
    assert leases.holder(SESSION) is None
    lease.release()


async def test_a_lease_on_a_disk_that_takes_nothing_any_more_is_freed_all_the_same(
    leases: Leases, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after an error, when the system makes the disk read-only."""
    lease = await leases.take(SESSION)

    def refuse(file: int, length: int) -> None:
        raise OSError(errno.EROFS, "read-only")

    with monkeypatch.context() as broken:
        broken.setattr(os, "ftruncate", refuse)
        lease.release()
    assert not leases.is_held(SESSION)
    (await leases.take(SESSION)).release()


async def test_a_lease_that_may_not_be_looked_at_counts_as_held_and_one_that_cannot_be_is_an_error(
    leases: Leases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that was made by root: nobody here can take it, and one such file keeps no list from being shown."""
    (await leases.take(SESSION)).release()

    def refuse(code: int) -> None:
        def fail(*_: object) -> int:
            raise OSError(code, os.strerror(code))

        monkeypatch.setattr(os, "open", fail)

    refuse(errno.EACCES)
    assert leases.is_held(SESSION)
    assert holdings(tmp_path) == (Holding(lease_name(SESSION)),)
    refuse(errno.EMFILE)
    with pytest.raises(LogUnwritableError, match="Too many open files"):
        leases.is_held(SESSION)


async def test_a_second_process_cannot_write_a_session_and_is_told_who_does(tmp_path: Path) -> None:
    with StoreChild("write", tmp_path / "store", 3) as first:
        assert first.answer() == "-1"
        with StoreChild("own", tmp_path / "store") as second:
            assert second.answer() == "exists"  # nothing is committed, but somebody holds the lease of that id
        assert first.ask() == "2"
        with StoreChild("own", tmp_path / "store") as third:
            assert third.answer() == f"owned {first.pid}"


async def test_the_operating_system_frees_the_lease_of_a_killed_process(tmp_path: Path) -> None:
    with StoreChild("write", tmp_path / "store", 3) as child:
        assert child.answer() == "-1"
        assert child.ask() == "2"
        store = await StoreKind(tmp_path / "store").open()
        assert store.is_owned(SESSION)
        with pytest.raises(SessionAlreadyOwnedError) as caught:
            await store.open(SESSION, "write")
        assert caught.value.details["pid"] == child.pid
        child.kill()
        assert not store.is_owned(SESSION)
        handle = await store.open(SESSION, "write")
        assert handle.tail == 2
        await store.close()
