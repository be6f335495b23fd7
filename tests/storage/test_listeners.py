"""Listeners are told in order, cannot harm each other, and are named when they are slow."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from refold_storage import reader as listeners
from refold_storage.reader import Listeners


def test_listeners_are_told_in_the_order_in_which_they_came() -> None:
    told: list[str] = []
    crowd: Listeners[str] = Listeners()
    crowd.add(lambda word: told.append("a" + word))
    stop = crowd.add(lambda word: told.append("b" + word))
    crowd.add(lambda word: told.append("c" + word))
    crowd.tell("1")
    stop()
    stop()
    crowd.tell("2")
    assert told == ["a1", "b1", "c1", "a2", "c2"]


def test_one_that_leaves_while_all_are_told_is_not_told_any_more() -> None:
    told: list[str] = []
    stops: list[Callable[[], None]] = []
    crowd: Listeners[str] = Listeners()
    crowd.add(lambda word: stops[0]())
    stops.append(crowd.add(told.append))
    crowd.tell("x")
    assert told == []


def test_one_that_comes_while_all_are_told_is_told_the_next_time() -> None:
    told: list[str] = []
    crowd: Listeners[str] = Listeners()
    stop = crowd.add(lambda word: crowd.add(told.append) and stop())
    crowd.tell("x")
    crowd.tell("y")
    assert told == ["y"]


def test_cancellation_and_exit_are_not_contained() -> None:
    def cancelled(word: str) -> None:
        raise asyncio.CancelledError

    crowd: Listeners[str] = Listeners()
    crowd.add(cancelled)
    with pytest.raises(asyncio.CancelledError):
        crowd.tell("x")


def test_a_slow_listener_is_named_in_the_log(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    times = iter((0.0, 0.001, 1.0, 1.5))
    monkeypatch.setattr(listeners, "perf_counter", lambda: next(times))

    def sluggish(word: str) -> None:
        pass

    crowd: Listeners[str] = Listeners()
    crowd.add(sluggish)
    crowd.tell("fast")
    assert caplog.text == ""
    crowd.tell("slow")
    assert "500 ms" in caplog.text
    assert "sluggish" in caplog.text


def test_cleared_listeners_are_forgotten() -> None:
    told: list[str] = []
    crowd: Listeners[str] = Listeners()
    crowd.add(told.append)
    crowd.clear()
    crowd.tell("x")
    assert told == []
