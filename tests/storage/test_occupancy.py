"""The store's lock: shared by those who have it open, alone for a compaction, and no forked child's business."""

from __future__ import annotations

import multiprocessing
import warnings
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from refold_protocol.errors import LogBusyError
from refold_storage.locks import OCCUPANCY_FILE, occupy, occupy_alone


def test_any_number_may_share_it_and_nobody_has_it_alone_meanwhile(tmp_path: Path) -> None:
    one, two = occupy(tmp_path), occupy(tmp_path)
    one.release()
    one.release()
    with pytest.raises(LogBusyError):
        occupy_alone(tmp_path)
    two.release()
    occupy_alone(tmp_path).release()
    assert (tmp_path / OCCUPANCY_FILE).read_bytes() == b""


def test_a_second_hold_keeps_it_until_both_are_released(tmp_path: Path) -> None:
    alone = occupy_alone(tmp_path)
    again = alone.again()
    again.release()
    with pytest.raises(LogBusyError):
        occupy_alone(tmp_path)
    alone.release()
    occupy(tmp_path).release()


def live(pipe: Connection) -> None:
    """What the forked child does: nothing, until it is told."""
    pipe.send("ready")
    pipe.recv()


def test_c_07_a_forked_child_does_not_keep_its_parents_lock(tmp_path: Path) -> None:
    """C-07: a child that lives on must not make the store look open."""
    held = occupy(tmp_path)
    mine, theirs = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=live, args=(theirs,))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # later Pythons warn of any fork beside threads
        child.start()
    assert mine.recv() == "ready"
    held.release()
    occupy_alone(tmp_path).release()
    mine.send("go")
    child.join()
    assert child.exitcode == 0
    mine.close()
    theirs.close()
