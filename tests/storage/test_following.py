"""Whoever writes a session commits sooner while another process follows it, and asks about that once a second at most."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
from pathlib import Path

import pytest

from refold_storage.lmdb_store import open_store
from refold_storage.locks import PROBE_SECONDS, FollowLock, FollowProbe, follow_file
from tests.support.stores import NEW, OTHER, SESSION, chunks, filled, new, new_uuid, until

pytestmark = pytest.mark.anyio

NEVER = 1e6


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return follow_file(tmp_path / "ab" / "abc.lock")


async def test_a_follower_is_seen_as_long_as_it_follows(file: Path) -> None:
    assert not FollowProbe(file).followed()
    one, two = FollowLock(file), FollowLock(file)
    assert FollowProbe(file).followed()
    one.release()
    one.release()
    assert FollowProbe(file).followed()
    two.release()
    assert not FollowProbe(file).followed()


async def test_the_question_is_asked_once_a_second_at_most(file: Path) -> None:
    clock = Clock()
    probe = FollowProbe(file, clock)
    assert not probe.followed()
    lock = FollowLock(file)
    clock.now = PROBE_SECONDS * 0.99
    assert not probe.followed()
    clock.now = PROBE_SECONDS
    assert probe.followed()
    lock.release()
    assert probe.followed()
    clock.now = PROBE_SECONDS * 2
    assert not probe.followed()


async def test_a_follower_that_meets_the_question_is_seen_soon_after(file: Path) -> None:
    file.parent.mkdir(parents=True)
    asking = os.open(file, os.O_RDONLY | os.O_CREAT, 0o600)
    fcntl.flock(asking, fcntl.LOCK_EX)
    lock = FollowLock(file)
    assert not lock.held
    os.close(asking)
    await until(lambda: lock.held)
    lock.release()
    assert not FollowProbe(file).followed()


async def test_a_follower_that_leaves_before_it_was_seen_does_not_come_back(file: Path) -> None:
    file.parent.mkdir(parents=True)
    asking = os.open(file, os.O_RDONLY | os.O_CREAT, 0o600)
    fcntl.flock(asking, fcntl.LOCK_EX)
    lock = FollowLock(file)
    lock.release()
    os.close(asking)
    later = FollowLock(file)
    later.release()
    assert not lock.held


async def test_a_full_disk_only_keeps_a_follower_from_being_seen(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*given: object) -> int:
        raise OSError(errno.ENOSPC, "no space", *given[:0])

    monkeypatch.setattr(os, "open", full)
    lock = FollowLock(file)
    assert not lock.held
    assert not FollowProbe(file).followed()
    lock.release()


async def test_a_question_that_cannot_be_asked_is_answered_with_no_and_fails_nobody(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = FollowLock(file)

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", refuse)
        assert not FollowProbe(file).followed()
    assert FollowProbe(file).followed()
    lock.release()


async def test_what_is_followed_is_committed_soon_though_others_may_wait_longer(tmp_path: Path) -> None:
    """This store commits nothing of itself, but what somebody follows."""
    store = await open_store(tmp_path, new_uuid=new_uuid, commit_seconds=NEVER)
    unfollowed = await store.create(new(OTHER))
    unfollowed.append(chunks(1))
    stop = store.follow(SESSION)
    followed = await store.create(NEW)
    reached = asyncio.Event()
    followed.watch_durable(lambda _: reached.set())
    followed.append(chunks(1))
    await reached.wait()
    assert (followed.durable, unfollowed.durable) == (0, 0)
    stop()
    await store.close()


async def test_a_commit_is_news_when_it_can_be_read_and_not_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a writer syncs, its number stands in the map, but views still begin at the one before."""
    store = await open_store(tmp_path, new_uuid=new_uuid)
    before = store.last_transaction()
    number = store.environment.last_transaction()
    monkeypatch.setattr(store.environment, "last_transaction", lambda: number + 1)
    assert store.last_transaction() == before
    await filled(store, chunks(1))
    assert store.last_transaction() > before
    await store.close()


def test_a_forked_child_does_not_keep_the_lock(file: Path) -> None:
    lock = FollowLock(file)
    ended, end = os.pipe()
    begun, begin = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(end)
        os.write(begin, b"x")
        os.read(ended, 1)
        os._exit(0)
    os.read(begun, 1)
    lock.release()
    try:
        assert not FollowProbe(file).followed()
    finally:
        os.close(end)
        os.waitpid(child, 0)
        for descriptor in (ended, begun, begin):
            os.close(descriptor)
