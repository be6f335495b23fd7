"""What `log/verify` says of a damaged log: the first place that is wrong, also while a session lives, and never by dying."""

from __future__ import annotations

from operator import methodcaller

import pytest

from refold_client import RpcError
from tests.support.chat_stream import reply, text
from tests.support.daemons import Json, Place, new_session, text_so_far, until
from tests.support.damage import Disk
from tests.support.fake_provider import FakeProvider, Gate, answer

pytestmark = pytest.mark.anyio

WORDS = " ".join(f"word{number}" for number in range(400))
"""More than one record takes."""


def chunked() -> bytes:
    """A reply in many pieces."""
    return b"".join(text(f"{word} ") for word in WORDS.split()) + reply("End.")


async def recorded(place: Place) -> tuple[str, Disk]:
    """Record a session of one turn in several records; nobody has it open any more."""
    async with FakeProvider(answer(chunked())) as provider:
        place.provider(provider.base_url)
        async with place.daemon() as client:
            session = await new_session(client, place)
            await client.prompt(session, "go")
    disk = Disk(place.store)
    assert len(disk.records) > 3
    return session, disk


@pytest.mark.parametrize(
    ("damage", "at", "what"),
    [
        (methodcaller("change_line", 1, 0, b'"time":', b'"time": '), 1, "chain"),
        (methodcaller("change_digest", 1), 1, "chain"),
        (methodcaller("flip", 1, 3), 1, "record"),
        (methodcaller("cut", 1, 100), 1, "record"),
        (methodcaller("drop", 1), 1, "record"),
        (methodcaller("drop", -1), -1, "head"),
        (methodcaller("cut", -1, 39), -1, "record"),
    ],
)
async def test_the_first_mismatch_is_named_with_its_events(place: Place, damage: methodcaller, at: int, what: str) -> None:
    session, disk = await recorded(place)
    damage(disk)
    async with place.daemon() as client:
        report = await client.request("log/verify", {"session": session})
        record = disk.records[at].record
        mismatch: Json = report["mismatch"]
        assert (mismatch["what"], mismatch["seq"], mismatch["last"]) == (what, record.first, record.last)
        if what != "chain":
            assert report["events"] == disk.records[-1].record.last + 1 - len(record.lines)
        disk.put(disk.records[at].key, disk.records[at].value)
        assert "mismatch" not in await client.request("log/verify", {"session": session})


async def test_a_log_that_is_damaged_under_its_writer_is_checked_with_what_is_not_committed_yet(place: Place) -> None:
    gate = Gate()
    async with FakeProvider(answer(chunked()), answer(text("Half"), gate, reply("."))) as provider:
        place.provider(provider.base_url)
        async with place.daemon() as client:
            session = await new_session(client, place)
            await client.prompt(session, "go")
            events = await client.subscribe(session, after="tail")
            await client.start_turn(session, "again")
            told = await text_so_far(events, "Half")
            disk = Disk(place.store)
            disk.flip(1, 3)
            record = disk.records[1].record
            report = await client.request("log/verify", {"session": session})
            assert (report["mismatch"]["seq"], report["mismatch"]["last"]) == (record.first, record.last)
            assert report["events"] >= told[-1]["seq"] + 1 - len(record.lines)
            disk.put(disk.records[1].key, disk.records[1].value)
            gate.open()
            await until(events, "turn/end")
            report = await client.request("log/verify", {"session": session})
            assert (report["requests"], report["equal"]) == (2, 2)
            assert "mismatch" not in report


async def test_a_session_whose_own_record_cannot_be_read_is_corrupt_and_the_others_are_checked(place: Place) -> None:
    session, disk = await recorded(place)
    disk.spoil_row(session)
    async with FakeProvider(answer(reply("One."))) as provider:
        place.provider(provider.base_url)
        async with place.daemon() as client:
            with pytest.raises(RpcError) as raised:
                await client.request("log/verify", {"session": session})
            assert raised.value.kind == "session.corrupt"
            other = await new_session(client, place)
            await client.prompt(other, "go")
            assert (await client.request("log/verify", {"session": other}))["equal"] == 1
