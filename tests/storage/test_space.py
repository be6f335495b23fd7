"""Which failed writes are about space."""

from __future__ import annotations

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import lmdb
import pytest

from refold_storage import disk as space
from refold_storage.disk import has_room, is_full, reserve


def half_written() -> lmdb.Error:
    """LMDB's answer to a write that stopped half-way."""
    error = lmdb.Error("mdb_txn_commit")
    setattr(error, "code", errno.EIO)  # noqa: B010 - final for whoever catches it
    return error


@pytest.fixture
def data_file(tmp_path: Path) -> Path:
    (tmp_path / "data.mdb").write_bytes(bytes(8192))
    return tmp_path / "data.mdb"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_what_the_system_calls_full_is_full(data_file: Path, number: int) -> None:
    assert is_full(OSError(number, os.strerror(number)), data_file, 10)


@pytest.mark.parametrize("error", [lmdb.DiskError("put"), lmdb.MapFullError("put")])
def test_what_lmdb_calls_full_is_full(data_file: Path, error: lmdb.Error) -> None:
    assert is_full(error, data_file, 10)


@pytest.mark.parametrize("error", [OSError(errno.EBADF, "closed"), lmdb.PanicError("commit"), lmdb.CorruptedError("get")])
def test_other_failures_are_not_about_space(data_file: Path, error: lmdb.Error | OSError) -> None:
    assert not is_full(error, data_file, 10)


def test_an_input_output_error_is_about_space_only_when_there_is_no_room(
    data_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not is_full(half_written(), data_file, 1 << 20)
    asked: list[int] = []

    def full(file: int, offset: int, size: int) -> None:
        asked.extend((offset, size))
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(space.os, "posix_fallocate", full)
    assert is_full(half_written(), data_file, 1 << 20)
    assert asked == [8192, 1 << 20]


def test_looking_for_room_leaves_nothing_behind(data_file: Path) -> None:
    assert has_room(data_file, 1 << 20)
    assert not has_room(data_file, 1 << 60)
    assert [path.name for path in data_file.parent.iterdir()] == ["data.mdb"]
    assert data_file.stat().st_size == 8192


def test_a_system_that_cannot_reserve_does_not_tell(data_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(file: int, offset: int, size: int) -> None:
        raise OSError(errno.EOPNOTSUPP, "not here")

    monkeypatch.setattr(space.os, "posix_fallocate", refuse)
    assert has_room(data_file, 10)
    monkeypatch.delattr(space.os, "posix_fallocate")
    assert has_room(data_file, 10)


def test_who_look_for_room_at_one_moment_do_not_take_each_other_for_room(data_file: Path) -> None:
    def asked() -> list[bool]:
        return [has_room(data_file, 1 << 60) for _ in range(300)]

    with ThreadPoolExecutor(4) as threads:
        answers = [threads.submit(asked) for _ in range(4)]
    assert not any(any(answer.result()) for answer in answers)


def test_what_is_reserved_is_on_the_disk_and_keeps_what_it_held(tmp_path: Path) -> None:
    file = tmp_path / "lock.mdb"
    file.write_bytes(b"held")
    os.truncate(file, 1 << 16)
    reserve(file, 1 << 17)
    assert file.stat().st_blocks * 512 >= 1 << 17
    assert file.read_bytes()[:5] == b"held\0"
    with pytest.raises(OSError, match=r"File too large|No space"):
        reserve(file, 1 << 60)
