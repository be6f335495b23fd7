"""`session/read`: each view as of any event, whole and in pages, warm and cold."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from refold_client import Client, RpcError
from refold_protocol.session.closers import drafts_as_events, interrupted_turn_closers
from refold_protocol.session.codec import decode_event
from refold_protocol.session.grammar import fold_turns
from refold_protocol.session.session_state import status_of
from refold_protocol.session.surface import fold_surface
from refold_protocol.session.transcript import transcript
from tests.support.chat_stream import call, calls, chunk, reply, text
from tests.support.daemons import Json, Place, kill, new_session, text_so_far
from tests.support.fake_provider import FakeProvider, answer

pytestmark = pytest.mark.anyio

MEMBER = {"events": "events", "surface": "nodes", "transcript": "entries"}
"""Where a view's items stand in the result."""

CALLS = calls(call(0, "c0", "read_file", '{"path":"animals.txt"}'), call(1, "c1", "nothing", "{}")) + chunk({}, "tool_calls")


async def cut_session(place: Place) -> str:
    """A session with one whole turn of two steps and one that a kill cut inside a text."""
    played = (answer(text("I look."), CALLS), answer(reply("It sleeps.")), answer(text("Half a"), end="hang"))
    async with FakeProvider(*played) as provider:
        place.provider(provider.base_url)
        async with place.daemon() as client:
            session = await new_session(client, place)
            await client.prompt(session, "Which animal sleeps?")
            events = await client.subscribe(session, after="tail")
            await client.start_turn(session, "Really?")
            told = await text_so_far(events, "Half a")
            await events.wait_durable(told[-1]["seq"])
            await kill(client)
    return session


async def pages(client: Client, session: str, view: str, at: int | None = None, **page: Any) -> list[list[Json]]:
    """Read a view page by page, as `next` leads."""
    given: list[list[Json]] = []
    while True:
        result = await client.read(session, view, at=at, page=page)
        given.append(result[MEMBER[view]])
        if "next" not in result:
            return given
        assert given[-1], "a page that leads to another is never empty"
        page["after"] = result["next"]


async def test_a_view_as_of_any_event_is_what_its_prefix_says(place: Place) -> None:
    session = await cut_session(place)
    recorded = await place.recorded(session)
    async with place.daemon() as client:
        lines = [decode_event(line) for line in await place.lines(session)]
        for at in range(-1, len(lines)):
            assert (await client.read(session, "events", at=at)).get("events") == recorded[: at + 1]
            known = lines[: at + 1]
            closers = interrupted_turn_closers(known) if at == len(lines) - 1 else ()  # only the end of a log is balanced
            whole = [*known, *drafts_as_events(closers, at)]
            nodes = (await client.read(session, "surface", at=at))["nodes"]
            assert [node["seq"] for node in nodes] == [node.seq for node in fold_surface(whole).nodes]
            entries = (await client.read(session, "transcript", at=at))["entries"]
            assert [(entry["seq"], entry["kind"]) for entry in entries] == [(row.seq, row.kind) for row in transcript(whole)]
            header = (await client.read(session, "header", at=at))["header"]
            assert (header is None) == (at < next(row["seq"] for row in recorded if row["type"] == "request/header"))
            status = (await client.read(session, "status", at=at))["status"]
            assert status == json.loads(msgspec.json.encode(status_of(fold_turns(whole))))


async def test_a_cold_view_shows_what_the_next_writer_will_write(place: Place) -> None:
    session = await cut_session(place)
    async with place.daemon() as client:
        cold = {view: await client.read(session, view) for view in ("surface", "transcript", "status", "events")}
        await client.open_session(session)
        for view in ("surface", "transcript", "status"):
            assert await client.read(session, view) == cold[view]
        assert cold["transcript"]["entries"][-2]["interrupted"]
        assert cold["transcript"]["entries"][-1]["reason"] == {"kind": "interrupted"}
        assert len((await client.read(session, "events"))["events"]) == len(cold["events"]["events"]) + 3


@pytest.mark.parametrize("view", sorted(MEMBER))
async def test_pages_joined_are_the_whole_view(place: Place, view: str) -> None:
    session = await cut_session(place)
    async with place.daemon() as client:
        (whole,) = await pages(client, session, view)
        for limit in (1, 2, 5, len(whole)):
            cut = await pages(client, session, view, limit=limit)
            assert [item for page in cut for item in page] == whole
            assert [len(page) for page in cut[:-1]] == [limit] * (len(cut) - 1)
        for size in (1, 300, 1_000, 1_000_000):
            cut = await pages(client, session, view, maxBytes=size)
            assert [item for page in cut for item in page] == whole
            assert all(len(page) == 1 or sum(map(json_bytes, page)) <= size for page in cut)
        at = whole[len(whole) // 2]["seq"]
        before = [item for item in whole if item["seq"] <= at]
        closers = 0 if view == "events" else len(whole)  # a cold view of an open turn may have some more
        half = [item for page in await pages(client, session, view, at=at, limit=1) for item in page]
        assert half[: len(before)] == before
        assert len(half) <= len(before) + closers
        assert await pages(client, session, view, before=at) == [[item for item in whole if item["seq"] < at]]
        assert await pages(client, session, view, after=whole[-1]["seq"]) == [[]]


def json_bytes(item: Json) -> int:
    """The size of an item without any blank."""
    return len(json.dumps(item, ensure_ascii=False, separators=(",", ":")).encode())


async def test_a_view_past_the_end_is_refused_with_the_end(place: Place) -> None:
    place.script({"text": "ok"})
    async with place.daemon() as client:
        session = await new_session(client, place)
        end = await client.prompt(session, "go")
        for view in (*MEMBER, "header", "status"):
            with pytest.raises(RpcError) as raised:
                await client.read(session, view, at=end["seq"] + 1)
            assert (raised.value.kind, raised.value.data["tail"]) == ("seq.range", end["seq"])


async def test_a_read_in_a_running_turn_sees_what_is_accepted(place: Place) -> None:
    async with FakeProvider(answer(text("Half"), end="hang")) as provider:
        place.provider(provider.base_url)
        async with place.daemon() as client:
            session = await new_session(client, place)
            events = await client.subscribe(session)
            await client.start_turn(session, "go")
            told = await text_so_far(events, "Half")
            assert (await client.read(session, "events"))["events"][: len(told)] == told
            assert (await client.read(session, "status"))["status"] == {"status": "running", "turn": 1, "step": 1}
            kinds = [entry["kind"] for entry in (await client.read(session, "transcript"))["entries"]]
            assert kinds == ["user"], "the turn is not balanced while somebody runs it"
            await client.interrupt(session, 1)
