"""The end of a walk over the chain is compared with the record beside the log. (Damage before it: test_damage.py.)"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from refold_protocol.errors import DigestMismatchError
from refold_protocol.session.codec import CHAIN_START
from refold_storage.damage import walk_chain
from tests.support.memory_store import MemoryStore
from tests.support.stores import NEW, SESSION, chunks

pytestmark = pytest.mark.anyio


async def test_a_record_beside_the_log_with_another_digest_is_noticed_at_the_end() -> None:
    store = MemoryStore(clock=lambda: 1_000)
    handle = await store.create(NEW)
    handle.append(chunks(300))
    await handle.flush()
    handle.log.head = replace(handle.log.head, digest=CHAIN_START)
    reader = await store.open(SESSION, "read")
    walked: list[int] = []
    with pytest.raises(DigestMismatchError) as caught:
        walked.extend(link.seq for link in walk_chain(reader))
    assert caught.value.details["seq"] == 299


async def test_a_handle_with_uncommitted_events_is_walked_up_to_what_is_durable() -> None:
    store = MemoryStore(clock=lambda: 1_000)
    handle = await store.create(NEW)
    handle.append(chunks(3))
    assert list(walk_chain(handle)) == []
    await handle.flush()
    handle.append(chunks(2))
    assert [link.seq for link in walk_chain(handle)] == [0, 1, 2]


async def test_an_empty_log_has_the_digest_of_the_beginning() -> None:
    handle = await MemoryStore(clock=lambda: 1_000).create(NEW)
    assert list(walk_chain(handle)) == []
    assert handle.head_digest == CHAIN_START
