"""Case C-05: the list of sessions agrees with the logs after every disturbance, without a repair.

What lists are made of is written in the transaction of the events that it counts, so there is no index that can stop, be
restored or be deleted without them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import reduce
from pathlib import Path

import pytest

from refold_protocol.errors import LogUnwritableError
from refold_protocol.ids import SessionId
from refold_protocol.session.session_totals import EMPTY_SUMMARY, summary_step
from refold_storage.interface import Store
from refold_storage.lmdb_store import accept_store, open_store
from refold_storage.store_format import DATA_FILE
from tests.support.stores import HandClock, filled, new, new_uuid, prompt

pytestmark = pytest.mark.anyio

KILLED = 9

CHILD = """
import asyncio, os, sys
from pathlib import Path
from refold_storage.lmdb_store import open_store
from tests.support.stores import filled, new, new_uuid, prompt

async def main(folder, wanted, times):
    seen = []

    def die(stage):
        seen.append(stage)
        if seen.count(wanted) == times:
            os._exit(9)

    store = await open_store(Path(folder), new_uuid=new_uuid, fail_point=die)
    handles = [await filled(store, [prompt(f"Prompt {number}")], new(f"killed-{number}")) for number in range(3)]
    for handle in reversed(handles):
        handle.append([prompt("And then?")])
        await handle.flush()
        await asyncio.sleep(0.002)  # the next is later by the clock

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""
"""Writes three sessions, then to each of them again, the last one first, and dies at a stage of a commit."""


async def listed(folder: Path) -> dict[str, int]:
    """Give the tails of the listed sessions; the list must agree with the logs, and have all of them in their order."""
    store = await open_store(folder, new_uuid=new_uuid, create=False)
    try:
        return await agreed(store)
    finally:
        await store.close()


async def agreed(store: Store) -> dict[str, int]:
    records = [record for _, record in store.recent(limit=100)]
    assert sorted(record.id for record in records) == sorted(map(str, store.survey()))
    activities = [max(record.created_at, record.summary.last_activity or 0) for record in records]
    assert activities == sorted(activities, reverse=True)
    for record in records:
        handle = await store.open(record.id, "read")
        events = list(handle.read())
        assert record.tail == len(events) - 1
        assert record.summary == reduce(summary_step, events, EMPTY_SUMMARY)
        await handle.close()
    return {record.id: record.tail for record in records}


async def written(folder: Path, *sessions: str) -> None:
    store = await open_store(folder, new_uuid=new_uuid, clock=HandClock())
    for name in sessions:
        await filled(store, [prompt(f"About {name}")], new(name))
    await store.close()


@pytest.mark.parametrize("times", [1, 3, 4, 6])
@pytest.mark.parametrize("stage", ["begun", "written", "committed"])
async def test_c_05_a_writer_that_is_killed_between_append_and_commit_leaves_a_list_that_agrees(
    tmp_path: Path, stage: str, times: int
) -> None:
    await written(tmp_path, "earlier")
    assert ended_child(tmp_path, stage, times) == KILLED
    commits = times if stage == "committed" else times - 1
    wanted = {f"killed-{number}": int(commits > 5 - number) for number in range(3) if commits > number}
    assert await listed(tmp_path) == {"earlier": 0, **wanted}


async def test_c_05_an_old_copy_that_is_restored_has_its_own_list(tmp_path: Path) -> None:
    store, copy = tmp_path / "store", tmp_path / "copy"
    await written(store, "one", "two")
    shutil.copytree(store, copy)
    await written(store, "three")
    shutil.rmtree(store)
    shutil.copytree(copy, store)
    assert await listed(store) == {"one": 0, "two": 0}


async def test_c_05_an_old_data_file_alone_is_refused_and_lists_what_it_has_once_it_is_accepted(tmp_path: Path) -> None:
    store, copy = tmp_path / "store", tmp_path / "copy"
    await written(store, "one", "two")
    shutil.copy(store / DATA_FILE, copy)
    await written(store, "three")
    shutil.copy(copy, store / DATA_FILE)
    with pytest.raises(LogUnwritableError, match="older than what was kept"):
        await listed(store)
    accept_store(store)
    assert await listed(store) == {"one": 0, "two": 0}


async def test_c_05_without_the_files_beside_the_data_nothing_is_missing_from_the_list(tmp_path: Path) -> None:
    await written(tmp_path, "one", "two")
    remove_all_but_data(tmp_path)
    assert await listed(tmp_path) == {"one": 0, "two": 0}


async def test_c_05_the_list_of_a_deleted_session_has_it_no_more_and_of_a_restored_one_again(tmp_path: Path) -> None:
    store, copy = tmp_path / "store", tmp_path / "copy"
    await written(store, "one", "two")
    shutil.copytree(store, copy)
    opened = await open_store(store, new_uuid=new_uuid)
    await opened.delete(SessionId("one"))
    assert await agreed(opened) == {"two": 0}
    await opened.close()
    assert await listed(store) == {"two": 0}
    assert await listed(copy) == {"one": 0, "two": 0}


def ended_child(folder: Path, stage: str, times: int) -> int:
    return subprocess.run(
        [sys.executable, "-c", CHILD, str(folder), stage, str(times)], cwd=os.getcwd(), check=False
    ).returncode


def remove_all_but_data(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != DATA_FILE:
            path.unlink()
