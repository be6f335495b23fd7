"""`refold run --record` and `refold replay`: a bug report becomes a test; the raw bytes hold no key."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.chat_stream import DONE, call, calls, chunk, reply, text
from tests.support.commands import Done, Here
from tests.support.fake_provider import Answer, FakeProvider, answer

KEY = "sk-5f0c-0123456789"
JSON = (("content-type", "application/json"),)
READ = answer(calls(call(0, "c0", "read_file", '{"path":"animals.txt"}')) + chunk({}, "tool_calls") + DONE)
BUSY = Answer((b'{"error":{"message":"busy"}}',), 503, JSON)
SOON = "[retry]\nattempts = 2\nbase_ms = 1"


def record(refold: Here, *played: Answer) -> Done:
    with FakeProvider(*played) as server:
        refold.place.provider(server.base_url, retry=SOON)
        return refold("run", "go", "--record", "kept")


def files(refold: Here) -> list[Path]:
    return sorted((refold.place.workspace / "kept").iterdir())


def replayed(refold: Here, session: str) -> Done:
    return refold("replay", session, "--from", "kept")


def test_what_was_recorded_is_equal_step_by_step(refold: Here) -> None:
    done = record(refold, BUSY, READ, answer(reply("done")))
    assert done.code == 0
    again = replayed(refold, done.session)
    assert (again.code, again.lines) == (0, ["1.1 attempt 1 equal", "1.1 attempt 2 equal", "1.2 attempt 1 equal"])
    assert refold("verify", done.session).code == 0


@pytest.mark.parametrize(
    "played",
    [
        [BUSY, BUSY],
        [answer(text("half"), end="cut")],
        [answer(text("half"), end="reset")],
        [answer(text("half") + b"data: rubbish\n\n")],
        [Answer(end="drop"), Answer(end="drop")],
        [Answer(status=302, headers=(("location", "/x"),))],
        [answer(text("half") + chunk({}, "content_filter") + DONE)],
    ],
    ids=["busy", "cut", "reset", "rubbish", "dropped", "redirect", "filtered"],
)
def test_a_failure_is_recorded_as_one_and_comes_again(refold: Here, played: list[Answer]) -> None:
    done = record(refold, *played)
    assert done.code == 4
    again = replayed(refold, done.session)
    assert (again.code, {line.rpartition(" ")[2] for line in again.lines}) == (0, {"equal"})


def test_a_recorded_reply_says_how_it_ended(refold: Here) -> None:
    record(refold, answer(text("half"), end="cut"))
    record(refold, answer(reply("whole")))
    assert [
        path.read_bytes().split(b"\r\n")[0] for path in sorted(files(refold), key=lambda path: path.stat().st_mtime_ns)
    ] == [
        b"HTTP/1.1 200 cut",
        b"HTTP/1.1 200 complete",
    ]


def test_a_reply_that_says_something_else_is_told_with_the_first_difference(refold: Here) -> None:
    session = record(refold, answer(reply("done"))).session
    (path,) = files(refold)
    path.write_bytes(path.read_bytes().replace(b"done", b"gone"))
    again = replayed(refold, session)
    assert again.code == 1
    assert again.lines[0].startswith("1.1 attempt 1 different: chunk ")
    assert refold("replay", session, "--from", "kept", "--json").values[0]["verdict"] == "different"


def test_a_missing_reply_is_told(refold: Here) -> None:
    session = record(refold, answer(reply("done"))).session
    files(refold)[0].unlink()
    again = replayed(refold, session)
    assert (again.code, again.lines) == (2, ["1.1 attempt 1 missing"])


def test_what_is_recorded_holds_no_key(refold: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOUSE_KEY", KEY)
    odd = Answer((b'{"error":{"message":"bad ' + KEY.encode() + b'"}}',), 400, (*JSON, ("x-request-id", KEY)))
    with FakeProvider(odd) as server:
        refold.place.provider(server.base_url)
        refold.place.config.write_text(refold.place.config.read_text() + 'key_env = "HOUSE_KEY"\n')
        done = refold("run", "go", "--record", "kept")
    (path,) = files(refold)
    data = path.read_bytes().decode()
    assert data.startswith("HTTP/1.1 400 complete\r\n")
    assert KEY[:8] not in data
    assert replayed(refold, done.session).code == 0


@pytest.mark.parametrize("data", [b"", b"rubbish\r\n\r\n", b"HTTP/1.1 200"])
def test_a_file_that_is_no_recorded_reply_is_told(refold: Here, data: bytes) -> None:
    session = record(refold, answer(reply("done"))).session
    files(refold)[0].write_bytes(data)
    again = replayed(refold, session)
    assert "is no recorded reply" in again.err
    assert again.code == 2


def test_a_folder_that_cannot_be_made_stops_before_anything_is_sent(refold: Here) -> None:
    (refold.place.workspace / "kept").write_text("a file")
    with FakeProvider() as server:
        refold.place.provider(server.base_url)
        done = refold("run", "go", "--record", "kept")
        assert server.requests == []
    assert (done.code, "--record" in done.err) == (2, True)
