"""What a whole daemon lists and tells of itself: sessions page by page, models, tools, health, the schema."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from refold_client import Client, RpcError
from refold_protocol.rpc.initialize import VERSION
from refold_server.rpc.method_table import METHODS
from refold_server.rpc.wire_schema import schema_of
from tests.support.chat_stream import text
from tests.support.daemons import Json, Place, new_session, text_so_far
from tests.support.fake_provider import FakeProvider, answer

pytestmark = pytest.mark.anyio


async def titled(client: Client, folder: Path, *titles: str) -> list[str]:
    """Sessions with these titles, each with an injection, so that it is in the store."""
    made: list[str] = []
    for title in titles:
        session = (await client.open_session(cwd=folder, title=title))["session"]
        await client.inject(session, "hello")
        made.append(session)
    return made


async def pages(client: Client, limit: int, **filters: Any) -> list[list[str]]:
    """The ids of all pages of a list."""
    found: list[list[str]] = []
    cursor: str | None = None
    while True:
        page: Any = await client.list_sessions(limit=limit, cursor=cursor, **filters)
        found.append([row["session"] for row in page["sessions"]])
        cursor = page.get("next")
        if cursor is None:
            return found


async def test_sessions_are_listed_page_by_page_the_latest_active_first(place: Place) -> None:
    async with place.daemon() as client:
        one, two, three = await titled(client, place.workspace, "One", "Two", "Three")
        assert await pages(client, 2) == [[three, two], [one]]
        assert await pages(client, 3) == [[three, two, one]]
        await client.inject(one, "again")
        assert await pages(client, 1) == [[one], [three], [two]]


async def test_a_session_without_anything_on_disk_is_not_listed(place: Place) -> None:
    async with place.daemon() as client:
        await new_session(client, place)
        assert await pages(client, 5) == [[]]


async def test_sessions_are_kept_by_folder_and_by_text_in_their_title(place: Place) -> None:
    other = place.root / "other"
    other.mkdir()
    async with place.daemon() as client:
        spring, autumn = await titled(client, place.workspace, "Spring cleaning", "Autumn")
        (elsewhere,) = await titled(client, other, "SPRING elsewhere")
        assert await pages(client, 5, cwd=str(other)) == [[elsewhere]]
        assert await pages(client, 5, cwd=place.workspace.as_uri()) == [[autumn, spring]]
        link = place.root / "link"
        link.symlink_to(place.workspace)
        assert await pages(client, 5, cwd=str(link)) == [[autumn, spring]], "a folder is found however it is spelt"
        assert await pages(client, 5, cwd=f"{place.workspace}/../{place.workspace.name}") == [[autumn, spring]]
        assert await pages(client, 5, text="sPRing") == [[elsewhere, spring]]
        assert await pages(client, 5, text="spring", cwd=str(place.workspace)) == [[spring]]
        assert await pages(client, 1, text="nothing") == [[]]


async def test_a_row_says_what_is_known_of_a_session(place: Place) -> None:
    async with FakeProvider(answer(text("Half"), end="hang")) as provider:
        place.provider(provider.base_url)
        async with place.daemon() as client, place.daemon() as other:
            session = await new_session(client, place, title="Zebras")
            events = await client.subscribe(session)
            await client.start_turn(session, "go")
            await text_so_far(events, "Half")
            rows: list[Any] = [(await one.list_sessions())["sessions"][0] for one in (client, other)]
            known = {"session": session, "cwd": str(place.workspace), "title": "Zebras", "status": "running"}
            assert all(known.items() <= row.items() for row in rows), "who writes it elsewhere is taken to run"
            await client.interrupt(session, 1)
            row: Json = dict((await client.list_sessions())["sessions"][0])
            assert (row["status"], row["turns"], row["model"]) == ("idle", 1, "fake/small")
            assert row["tail"] == (await client.open_session(session))["tail"]


@pytest.mark.parametrize("cursor", ["", "1", "1.", ".1", "1.1.1", "-1.1", "a.b", "1.٣"])
async def test_a_cursor_that_no_page_gave_is_refused_with_its_path(place: Place, cursor: str) -> None:
    async with place.daemon() as client:
        with pytest.raises(RpcError) as raised:
            await client.request("session/list", {"limit": 5, "cursor": cursor})
        assert (raised.value.code, raised.value.data) == (-32602, {"path": "$.cursor"})


@pytest.mark.parametrize(
    ("params", "path"),
    [({}, "$.limit"), ({"limit": 0}, "$.limit"), ({"limit": 1001}, "$.limit"), ({"limit": 1, "x": 1}, "$.x")],
)
async def test_a_list_is_asked_for_with_a_limit_and_nothing_unknown(place: Place, params: Json, path: str) -> None:
    async with place.daemon() as client:
        with pytest.raises(RpcError) as raised:
            await client.request("session/list", params)
        assert (raised.value.code, raised.value.data) == (-32602, {"path": path})


async def test_a_folder_is_named_by_an_absolute_path(place: Place) -> None:
    async with place.daemon() as client:
        for cwd in ("relative", "file://elsewhere/x"):
            with pytest.raises(RpcError) as raised:
                await client.request("session/list", {"limit": 5, "cwd": cwd})
            assert (raised.value.kind, raised.value.data["key"]) == ("config.invalid", "cwd")


async def test_the_sessions_of_a_folder_that_is_gone_are_listed(place: Place) -> None:
    folder = place.root / "gone"
    folder.mkdir()
    async with place.daemon() as client:
        (session,) = await titled(client, folder, "Spring cleaning")
        folder.rmdir()
        assert await pages(client, 5, cwd=str(folder)) == [[session]]
        assert await pages(client, 5, cwd=f"{folder.as_uri()}/") == [[session]]
        assert await pages(client, 5, cwd=str(place.root / "never")) == [[]]


async def test_models_and_providers_are_those_of_the_configuration_and_no_key_is_told(place: Place) -> None:
    table = '[providers.{0}]\ndialect = "chat-completions"\nbase_url = "http://127.0.0.1:9/v1"\nkey_env = "{1}"\n'
    big = '[models."far/big"]\ncontext_window = 1000\nmax_output = 100\n'
    place.configure('model = "near/small"\n' + table.format("near", "HOME") + table.format("far", "NO_SUCH_KEY") + big)
    async with place.daemon() as client:
        found: Any = await client.models()
    assert [(row["model"], row.get("isDefault", False)) for row in found["models"]] == [
        ("near/small", True),
        ("far/big", False),
    ]
    assert (found["models"][1]["contextWindow"], found["models"][1]["maxOutput"]) == (1000, 100)
    assert [(row["provider"], row["credentials"]) for row in found["providers"]] == [
        ("rehearsal", "none"),
        ("near", "present"),
        ("far", "missing"),
    ]
    assert os.environ["HOME"] not in str(found["providers"])


async def test_tools_are_told_as_models_are_told_of_them(place: Place) -> None:
    place.configure('[tools]\nenabled = ["read_file", "list_files"]\n')
    async with place.daemon() as client:
        tools: Any = (await client.tools())["tools"]
        session = await new_session(client, place)
        await client.prompt(session, "go")
        header = (await client.read(session, "header"))["header"]
    assert [tool["name"] for tool in tools] == [tool["name"] for tool in header["tools"]]
    assert {tool["name"] for tool in tools} == {"read_file", "list_files"}
    assert {(tool["readOnly"], tool["source"], tool["parameters"]["type"]) for tool in tools} == {(True, "builtin", "object")}


async def test_the_daemon_tells_how_it_and_its_store_are(place: Place) -> None:
    async with place.daemon() as client:
        (session,) = await titled(client, place.workspace, "One")
        health: Any = await client.health()
        tail = (await client.open_session(session))["tail"]
    assert (health["version"], health["pid"]) == (VERSION, client.pid)
    assert health["uptimeMs"] >= 0
    store = health["store"]
    assert (Path(store["path"]), store["format"], store["sessions"]) == (place.store, 0, 1)
    assert 0 < store["usedBytes"] <= store["mapBytes"]
    assert health["sessions"] == [{"session": session, "status": "idle", "tail": tail, "durable": tail}]


async def test_the_schema_has_the_digest_that_was_announced(place: Place) -> None:
    async with place.daemon() as client:
        told: Any = await client.schema()
        announced = client.server["capabilities"]["experimental"]["refold"]["schema"]
    assert told["digest"] == announced
    assert json.dumps(told["schema"], sort_keys=True) == json.dumps(schema_of(METHODS), sort_keys=True)
