"""`refold export`: files that ordinary tools read, whole or not there, up to the damage where there is one."""

from __future__ import annotations

import asyncio
import json
import stat
from pathlib import Path

import pytest

from refold_server.cli.terminal import PROGRESS_EVENTS
from tests.support.chat_stream import reply, text
from tests.support.commands import Here, shell, there
from tests.support.daemons import Place, new_session, text_so_far
from tests.support.damage import Disk
from tests.support.exports import long_export, refold_lines
from tests.support.fake_provider import FakeProvider, answer
from tests.support.terminal import on_terminal


@pytest.fixture
def session(refold: Here) -> str:
    """A session with tools, of several records."""
    return refold("run", "Where is the zebra?").session


@pytest.fixture
def file(refold: Here, session: str) -> Path:
    """Its export."""
    path = refold.place.root / "session.jsonl"
    assert refold("export", session, "-o", str(path)).code == 0
    return path


def test_an_export_is_the_record_and_each_line_as_it_is_stored(refold: Here, session: str, file: Path) -> None:
    done = refold("export", session)
    assert (done.code, done.err) == (0, "")
    assert done.out == file.read_bytes()
    assert done.lines[1:] == refold("log", session, "--view", "events", "--json").lines
    head = done.values[0]
    assert (head["type"], head["format"], head["id"], head["tail"]) == ("refold/session", 0, session, len(done.lines) - 2)
    assert head["cwd"] == str(refold.place.workspace)


def test_ordinary_tools_read_it(refold: Here, session: str, file: Path) -> None:
    del session
    ends = shell(refold.place, f'grep -c \'"type":"turn/end"\' {file}')
    assert ends.out == b"1\n"
    assert [json.loads(line)["seq"] for line in file.read_text().split("\n")[1:-1]] == list(range(len(refold_lines(file)) - 1))


@pytest.mark.anyio
async def test_a_session_is_exported_while_its_turn_runs_and_the_copy_can_be_gone_on_with(place: Place) -> None:
    async with FakeProvider(answer(text("Half"), end="hang"), answer(reply("Done."))) as provider:
        place.provider(provider.base_url)
        async with place.daemon() as client:
            session = await new_session(client, place)
            events = await client.subscribe(session)
            await client.start_turn(session, "go")
            told = await text_so_far(events, "Half")
            await client.flush(session, told[-1]["seq"])
            file = place.root / "running.jsonl"
            done = await asyncio.to_thread(place.refold, "export", session, "-o", str(file))
            assert (done.returncode, done.stderr) == (0, "")
            assert len(refold_lines(file)) == told[-1]["seq"] + 2
            done = await asyncio.to_thread(place.refold, "import", str(file), "--new-id")
            other = done.stdout.strip()
            await client.open_session(other)
            await client.prompt(other, "again")
            await client.interrupt(session, 1)
    ends = [event["data"]["reason"]["kind"] for event in await place.recorded(other) if event["type"] == "turn/end"]
    assert ends == ["interrupted", "completed"]
    assert (await place.verify(other))["equal"] == 2


def test_a_part_is_a_session_of_its_own(refold: Here, session: str, file: Path) -> None:
    part = refold("export", session, "--at", "10")
    assert part.code == 0
    assert part.lines[1:] == refold_lines(file)[1:12]
    (other,) = there(refold.place, "import", "-", "--new-id", given=part.out).lines
    assert refold("verify", other).code == 0
    assert len(refold.events(other)) == 11
    done = refold("export", session, "--at", "100000")
    assert (done.code, done.out) == (2, b"")
    assert done.err.startswith("refold: seq.range: ")


def test_a_part_knows_the_writers_of_its_own_events_only(refold: Here) -> None:
    refold.place.script(*[{"text": "Hi."}] * 2)
    session = refold("run", "Hello").session
    assert refold("run", "Again", "--session", session).code == 0
    whole, part = refold("export", session), refold("export", session, "--at", "5")
    (first, second) = whole.values[0]["writers"]
    assert second[1] > 5
    assert part.values[0]["writers"] == [first]
    assert there(refold.place, "import", "-", "--new-id", given=part.out).code == 0


def test_a_part_of_what_a_fork_inherited_says_where_it_comes_from(refold: Here, session: str) -> None:
    (child,) = refold("fork", session, "--at", "20").lines
    part = refold("export", child, "--at", "10")
    assert (part.values[0]["parent"]["session"], part.values[0]["parent"]["at"]) == (session, 10)
    (other,) = there(refold.place, "import", "-", "--new-id", given=part.out).lines
    assert refold("export", other).lines[1:] == part.lines[1:]


def test_a_damaged_session_is_exported_up_to_the_damage_and_that_can_be_imported(refold: Here, session: str) -> None:
    """Case C-03's neighbour: one damaged session must not take what is whole of it along."""
    disk = Disk(refold.place.store)
    assert len(disk.records) > 4
    whole = refold("export", session).lines
    disk.flip(3, 50)
    first = disk.records[3].record.first
    for output in ([], ["-o", str(refold.place.root / "part")]):
        done = refold("export", session, *output)
        assert done.code == 1
        assert done.err.startswith(f"refold: session.corrupt: only the events 0 to {first - 1} were exported; ")
    data = (refold.place.root / "part").read_bytes()
    assert data.decode().split("\n")[1:-1] == whole[1 : first + 1]
    (other,) = there(refold.place, "import", "-", "--new-id", given=data).lines
    assert refold("verify", other).code == 0


@pytest.mark.parametrize("harm", ["changed", "dropped", "end", "digest"])
def test_every_kind_of_damage_ends_an_export(refold: Here, session: str, harm: str) -> None:
    disk = Disk(refold.place.store)
    whole, last = refold("export", session).lines, disk.records[-1].record
    kept = disk.records[2].record.first
    if harm == "changed":
        disk.change_line(2, 0, b'"type"', b'"tyqe"')
    elif harm == "dropped":
        disk.drop(2)
    elif harm == "digest":
        disk.change_digest(2)
    else:
        disk.drop(len(disk.records) - 1)
        kept = last.first
    done = refold("export", session)
    assert done.code == 1
    assert done.lines[1:] == whole[1 : kept + 1]
    assert f"only the events 0 to {kept - 1} were exported" in done.err


def test_a_session_of_which_nothing_is_whole_is_not_exported(refold: Here, session: str) -> None:
    Disk(refold.place.store).flip(0, 50)
    path = refold.place.root / "none"
    done = refold("export", session, "-o", str(path))
    assert (done.code, done.out, path.exists()) == (7, b"", False)
    assert done.err.startswith("refold: session.corrupt: ")


def test_a_file_is_put_in_place_whole_and_is_its_owners(refold: Here, session: str, file: Path) -> None:
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.write_text("before")
    link = file.with_name("link")
    link.symlink_to(file)
    assert refold("export", session, "--output", str(link)).code == 0
    assert link.is_symlink()
    assert file.read_bytes() == refold("export", session).out
    assert [path.name for path in file.parent.iterdir() if path.name.endswith(".part")] == []


def test_an_export_that_fails_leaves_the_file_as_it_was(refold: Here, session: str, file: Path) -> None:
    before = file.read_bytes()
    assert refold("export", "nobody", "-o", str(file)).code == 2
    assert file.read_bytes() == before
    done = refold("export", session, "-o", str(file.parent / "gone" / "x"))
    assert (done.code, done.out) == (2, b"")
    assert "--output: " in done.err
    done = there(refold.place, "export", session, "-o", "/dev/full")
    assert done.code == 2
    assert "No space left on device" in done.err
    assert Path("/dev/full").is_char_device()
    assert refold("export", session, "-o", "-").out == before


def test_long_logs_show_on_a_terminal_how_far_it_is(place: Place, tmp_path: Path) -> None:
    count = PROGRESS_EVENTS + 5_000
    file, copy = tmp_path / "long.jsonl", tmp_path / "copy.jsonl"
    file.write_bytes(long_export("long", count))
    for command in (["import", str(file)], ["export", "long", "-o", str(copy)]):
        with on_terminal(place, *command) as terminal:
            assert terminal.end() == 0
            assert f" % of {count} events" in terminal.shown
    assert copy.read_bytes().split(b"\n")[1:] == file.read_bytes().split(b"\n")[1:]
