"""A key that the configuration names shows nowhere, whoever repeats it: a provider in any field, or a plugin in its faults."""

from __future__ import annotations

import json

import pytest

from refold_server.secret_text import PIECE
from tests.support.chat_stream import DONE, call, calls, chunk, reply
from tests.support.commands import Done, Here, there
from tests.support.daemons import Place
from tests.support.fake_provider import Answer, FakeProvider, answer
from tests.support.plugin_files import named, write_plugin

KEY = "sk-live-0a1b2c3d4e5f6a7b8c9d"
JSON = (("content-type", "application/json"),)
HTML = (("content-type", "text/html"),)

PLUGIN = """
import logging, os
from msgspec import Struct
from refold_server.plugins import PRE_STEP, STREAM, ToolFailure, tool

class Params(Struct, frozen=True, forbid_unknown_fields=True):
    pass

async def run(context, params):
    logging.getLogger("plugin").warning("I use %s", os.environ["HOUSE_KEY"])
    raise RuntimeError("refused: " + "x" * 480 + os.environ["HOUSE_KEY"])

async def refuse(context, params):
    raise ToolFailure("REFUSED", os.environ["HOUSE_KEY"], "refused with " + os.environ["HOUSE_KEY"])

async def stream(outgoing, next):
    async for chunk in next(outgoing):
        yield chunk
    if b"second" in outgoing.body:
        raise RuntimeError("no " + os.environ["HOUSE_KEY"])

async def before(step, next):
    raise ValueError(os.environ["HOUSE_KEY"])

def register(registry):
    registry.tool(tool("fetch", "Fetches.", Params, run, read_only=True))
    registry.tool(tool("refuse", "Refuses.", Params, refuse, read_only=True))
    registry.on(PRE_STEP, before)
    registry.on(STREAM, stream)
"""


@pytest.fixture
def refold(place: Place, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Here:
    monkeypatch.setenv("HOUSE_KEY", KEY)
    return Here(place, capfd, monkeypatch)


def configure(place: Place, base_url: str, more: str = "") -> None:
    place.provider(base_url, more)
    place.config.write_text(place.config.read_text() + 'key_env = "HOUSE_KEY"\n')


def assert_hidden(*shown: str) -> None:
    text = "\n".join(shown)
    assert [KEY[at : at + PIECE] for at in range(len(KEY) - PIECE + 1) if KEY[at : at + PIECE] in text] == []


def everything(refold: Here, done: Done) -> list[str]:
    """All that is kept and shown of a session."""
    session = done.session
    shown = [refold("log", session, "--view", view) for view in ("transcript", "events")]
    shown += [refold("export", session), refold("doctor"), refold("log", session, "--view", "events", "--json")]
    return [done.text, done.err, *(part for one in shown for part in (one.text, one.err))]


@pytest.mark.parametrize(
    "played",
    [
        Answer((b'{"error":{"message":"' + b"x" * (290 - cut) + KEY.encode() + b' is bad"}}',), 401, JSON)
        for cut in range(0, 24, 6)
    ]
    + [
        Answer((b"{}",), 400, (*JSON, ("x-request-id", f"id-{KEY}"))),
        Answer(status=302, headers=(("location", f"https://h/{'y' * 100}{KEY}"),)),
        Answer((f"<html><title>{'t' * 70}{KEY}</title></html>".encode(),), 200, HTML),
        Answer((KEY.encode(),), 500, HTML),
        answer(chunk({"content": "hi"}) + chunk({}, f"why_{KEY}") + DONE),
        answer(b"data: " + KEY.encode() + b"\n\n"),
    ],
    ids=[*(f"error cut {at}" for at in range(4)), "request id", "location", "title", "page", "finish", "rubbish"],
)
def test_no_field_of_a_provider_shows_a_key(refold: Here, played: Answer) -> None:
    with FakeProvider(played) as provider:
        configure(refold.place, provider.base_url)
        done = refold("run", "go")
        assert_hidden(*everything(refold, done))


def test_no_fault_of_a_plugin_shows_a_key(refold: Here) -> None:
    both = calls(call(0, "c0", "fetch", "{}")) + calls(call(1, "c1", "refuse", "{}"))
    asked = answer(both + chunk({}, "tool_calls") + DONE)
    with FakeProvider(asked, answer(reply("done")), answer(reply("never"))) as provider:
        path = write_plugin(refold.place, "leaky", PLUGIN)
        configure(refold.place, provider.base_url, named(path))
        done = refold("run", "go")
        assert done.code == 0
        results = [one["content"] for one in json.loads(provider.requests[1].body)["messages"] if one["role"] == "tool"]
        assert "fetch failed: RuntimeError: refused" in results[0]
        assert results[1] == "refused with •••"
        failed = refold("run", "second", "--session", done.session)
        assert "RuntimeError: no •••" in failed.err
        assert_hidden(*everything(refold, done), failed.err, *(one.body.decode() for one in provider.requests))


def test_what_a_plugin_logs_shows_no_key(place: Place) -> None:
    asked = answer(calls(call(0, "c0", "fetch", "{}")) + chunk({}, "tool_calls") + DONE)
    with FakeProvider(asked, answer(reply("done"))) as provider:
        configure(place, provider.base_url, named(write_plugin(place, "leaky", PLUGIN)))
        done = there(place, "run", "go", env={"HOUSE_KEY": KEY})
    assert "I use •••" in done.err
    assert_hidden(done.err)


def test_a_plugin_that_cannot_be_loaded_shows_no_key(refold: Here) -> None:
    path = write_plugin(refold.place, "broken", "import os\nraise RuntimeError(os.environ['HOUSE_KEY'])\n")
    configure(refold.place, "http://127.0.0.1:9/v1", named(path))
    for command in (("run", "go"), ("doctor",)):
        done = refold(*command)
        assert "RuntimeError" in done.text + done.err
        assert_hidden(done.text, done.err)


@pytest.mark.parametrize(
    ("mode", "headers", "codes"),
    [
        (0o600, True, []),
        (0o644, False, []),
        (0o644, True, ["config.readable"]),
        (0o620, True, ["config.writable"]),
        (0o666, True, ["config.writable", "config.readable"]),
    ],
)
def test_doctor_tells_of_a_configuration_that_others_can_use(refold: Here, mode: int, headers: bool, codes: list[str]) -> None:
    more = f'headers = {{ X-Api-Key = "{KEY}" }}\n' if headers else ""
    refold.place.provider("http://127.0.0.1:9/v1")
    refold.place.config.write_text(refold.place.config.read_text() + more)
    refold.place.config.chmod(mode)
    done = refold("doctor", "--json")
    found = [one["code"] for one in json.loads(done.out).get("findings", ()) if one["code"].startswith("config.")]
    assert found == codes
    assert_hidden(done.text, done.err)
