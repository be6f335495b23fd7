"""C-02: one damaged session among a hundred. It is refused with what is wrong; the others are listed, read and gone on with.

Invariant: One damaged session among a hundred is refused and named; the others are listed, read and gone on with.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import lmdb
import pytest
from msgspec.structs import replace

from refold_client import Client, RpcError
from refold_protocol.ids import SessionId
from refold_protocol.session.codec import CHAIN_START, chain
from refold_server.clock import epoch_ms, uuid7
from refold_storage.interface import NewSession
from refold_storage.lmdb_store import open_store
from tests.support.chat_stream import reply
from tests.support.daemons import Place
from tests.support.damage import Disk
from tests.support.fake_provider import FakeProvider, answer
from tests.support.logs import Log, spoken

pytestmark = pytest.mark.anyio

COUNT = 100
BAD = 50
"""Which of them is damaged."""


async def a_hundred(place: Place) -> list[str]:
    """Make sessions of one turn, in several records; give their ids, the first made first."""
    log = Log()
    log.instance()
    log.turn("Say a lot.")
    log.step()
    for _ in range(10):
        log.stream(*spoken(f"a piece {uuid7()}"))
    log.reply("All of it.")
    log.end_step()
    log.end_turn()
    digest = chain(log.lines, CHAIN_START).hex()
    made: list[str] = []
    store = await open_store(place.store, new_uuid=uuid7, clock=epoch_ms)
    for _ in range(COUNT):
        handle = await store.create(NewSession(SessionId(uuid7()), str(place.workspace), epoch_ms()))
        record = replace(handle.record, tail=len(log.events) - 1, head_digest=digest)
        await handle.close()
        await store.import_session(record, log.lines)
        made.append(record.id)
    await store.close()
    return made


def damaged(place: Place) -> Disk:
    """Give the records of the bad session."""
    return Disk(place.store, BAD + 1)


def first_event(disk: Disk) -> int:
    line = disk.records[0].record.lines[0]
    return disk.change_line(0, 0, line, b"\0" * 40)


def middle_event(disk: Disk) -> int:
    line = disk.records[1].record.lines[1]
    return disk.change_line(1, 1, line, b"\0" * 40)


def later_version(disk: Disk) -> int:
    disk.flip(1, 0)
    return disk.records[1].record.first


def stored(place: Place) -> list[bytes]:
    """Give what lies in the store of the bad session, byte for byte."""
    with lmdb.open(str(place.store), 1 << 30, max_dbs=8, lib_version=0) as environment:
        records = environment.open_db(b"records")
        with environment.begin() as transaction, transaction.cursor(records) as cursor:
            return [value for key, value in cursor if int.from_bytes(key[:8], "big") == BAD + 1]


async def listed(client: Client) -> list[str]:
    """Give the ids of all sessions, by pages."""
    found: list[str] = []
    page = await client.request("session/list", {"limit": 30})
    while True:
        found += [row["session"] for row in page["sessions"]]
        if "next" not in page:
            return found
        page = await client.request("session/list", {"limit": 30, "cursor": page["next"]})


@pytest.mark.parametrize(
    ("damage", "kind"),
    [(first_event, "session.corrupt"), (middle_event, "session.corrupt"), (later_version, "session.format")],
)
async def test_c_02_one_damaged_session_among_a_hundred_is_refused_and_named_and_the_others_work(
    place: Place, damage: Callable[[Disk], int], kind: str
) -> None:
    made = await a_hundred(place)
    seq = damage(damaged(place))
    before = stored(place)
    async with FakeProvider(*[answer(reply("Fine.")) for _ in range(2)]) as provider:
        place.provider(provider.base_url)
        async with place.daemon() as client:
            assert sorted(await listed(client)) == sorted(made)
            for mode in ("write", "read"):
                with pytest.raises(RpcError) as raised:
                    await client.request("session/open", {"session": made[BAD], "mode": mode})
                assert (raised.value.kind, raised.value.data["seq"]) == (kind, seq)
            for good in (made[BAD - 1], made[BAD + 1]):
                await client.open_session(good)
                await client.prompt(good, "And now?")
            assert sorted(await listed(client)) == sorted(made)
    assert stored(place) == before
    done = await asyncio.to_thread(place.refold, "verify", "--all", "--json")
    assert done.returncode != 0
    wrong = [row for row in map(json.loads, done.stdout.split("\n")[:-1]) if not row.get("verified")]
    assert [row["session"] for row in wrong] == [made[BAD]], done.stdout + done.stderr
