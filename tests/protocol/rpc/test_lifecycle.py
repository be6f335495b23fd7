"""The order of life: what may pass when, and the exit code. Case D-04."""

from __future__ import annotations

from refold_protocol.rpc.connection_state import Lifecycle, Stage
from refold_protocol.rpc.wire_errors import INVALID_REQUEST, SERVER_NOT_INITIALIZED


def code(lifecycle: Lifecycle, method: str) -> int | None:
    refusal = lifecycle.refusal(method)
    return None if refusal is None else refusal.code


def running() -> Lifecycle:
    lifecycle = Lifecycle()
    lifecycle.initialized()
    return lifecycle


def shut_down() -> Lifecycle:
    lifecycle = running()
    lifecycle.shut_down()
    return lifecycle


def test_d04_before_initialize_only_initialize_and_exit_pass() -> None:
    fresh = Lifecycle()
    assert code(fresh, "initialize") is None
    assert [code(fresh, method) for method in ("session/open", "shutdown")] == [SERVER_NOT_INITIALIZED] * 2
    assert [fresh.takes(method) for method in ("exit", "initialized", "$/cancelRequest", "x")] == [True] + [False] * 3


def test_d04_a_second_initialize_is_refused() -> None:
    assert code(running(), "initialize") == INVALID_REQUEST
    assert code(running(), "session/open") is None
    assert running().takes("anything")


def test_d04_after_shutdown_requests_are_refused_and_running_ones_can_be_cancelled() -> None:
    lifecycle = shut_down()
    refused = ("session/open", "initialize", "shutdown")
    assert [code(lifecycle, method) for method in refused] == [INVALID_REQUEST] * 3
    assert [lifecycle.takes(method) for method in ("exit", "$/cancelRequest", "x")] == [True, True, False]


def test_d04_the_exit_code_is_0_after_shutdown_and_1_without() -> None:
    assert [stage().exit_code for stage in (Lifecycle, running, shut_down)] == [1, 1, 0]


def test_the_exit_code_stays_when_the_connection_is_over() -> None:
    lifecycle = shut_down()
    lifecycle.over()
    lifecycle.initialized()
    assert (lifecycle.exit_code, lifecycle.stage) == (0, Stage.OVER)
