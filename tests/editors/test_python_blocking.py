"""The blocking client: the same calls, results, errors and endings, without an event loop of the caller's."""

from __future__ import annotations

import inspect
import json
import os
import signal
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest

from refold_client import Client, ConnectionEndedError, Cursor, RpcError, Subscription
from refold_client.blocking import BlockingClient, BlockingSubscription, spawn_blocking
from tests.support.chat_stream import text
from tests.support.daemons import SERVE, Place
from tests.support.fake_provider import FakeProvider, answer
from tests.support.processes import TOY

ASYNC_ONLY = {"receive"}
"""What the connection itself calls."""


@contextmanager
def daemon(place: Place) -> Generator[BlockingClient]:
    """A daemon of this place."""
    with (
        place.errors.open("ab") as errors,
        spawn_blocking(SERVE, env=place.daemon_env, stderr=errors, options={"store": str(place.store)}) as client,
    ):
        yield client


def public(kind: type) -> set[str]:
    return {name for name in vars(kind) if not name.startswith("_")}


def test_every_call_of_the_asynchronous_client_is_there_and_takes_the_same() -> None:
    assert public(Client) - public(BlockingClient) == ASYNC_ONLY
    for name in public(Client) - ASYNC_ONLY - {"listen", "on_approval", "subscribe", "pid"}:
        assert inspect.signature(getattr(BlockingClient, name)) == inspect.signature(getattr(Client, name))
    given = inspect.signature(BlockingClient.subscribe).parameters
    assert dict(given) == dict(inspect.signature(Client.subscribe).parameters)
    assert {"stop", "wait_durable", "cursor"} <= public(BlockingSubscription) & public(Subscription)


def test_a_session_is_prompted_followed_and_proved(place: Place) -> None:
    place.script({"text": "Here I am."}, {"text": "Still."})
    with daemon(place) as client:
        assert client.server["serverInfo"]["name"] == "refold"
        session = client.open_session(cwd=place.workspace)["session"]
        assert client.prompt(session, "Are you there?")["data"]["reason"] == {"kind": "completed"}
        seqs: list[int] = []
        events = client.subscribe(session)
        for event in events:
            seqs.append(event["seq"])
            if event["type"] == "turn/end":
                break
        assert seqs == list(range(len(seqs)))
        events.wait_durable(seqs[-1])
        assert events.cursor == Cursor(session, seqs[-1], events.state.writer)
        events.stop()
        assert list(events) == []
        assert client.rebuild(session, 1, 1)["verdict"] == "equal"
        report = client.verify(session)
        assert (report["requests"], report["equal"], report.get("mismatch")) == (1, 1, None)


def test_what_the_daemon_knows_of_itself_is_told(place: Place) -> None:
    place.script()
    with daemon(place) as client:
        session = client.open_session(cwd=place.workspace)["session"]
        health = client.health()
        assert health["pid"] == client.pid
        assert [live["session"] for live in health["sessions"]] == [session]
        assert "read_file" in {tool["name"] for tool in client.tools()["tools"]}
        assert client.models()["models"][0]["provider"] == "rehearsal"
        assert client.schema()["digest"] == client.server["capabilities"]["experimental"]["refold"]["schema"]


def test_notifications_that_inform_are_iterated_over(place: Place) -> None:
    place.script({"text": "Here I am."})
    with daemon(place) as client:
        told = client.listen("sessions/changed")
        session = client.open_session(cwd=place.workspace)["session"]
        client.prompt(session, "Are you there?")
        assert next(told)["session"] == session
        assert client.close() == 0
        assert all(one["session"] == session for one in told), "and end with the connection"
        with pytest.raises(KeyError):
            client.listen("no/such")


def test_errors_are_those_of_the_asynchronous_client() -> None:
    with spawn_blocking(TOY) as client, pytest.raises(RpcError) as raised:
        client.request("toy/busy")
    assert raised.value.kind == "session.busy"
    with pytest.raises(ConnectionEndedError), spawn_blocking((sys.executable, "-c", "pass")):
        pass


def test_a_block_that_fails_kills_the_daemon_and_one_that_ends_well_closes_it() -> None:
    clients: list[BlockingClient] = []

    def fail() -> None:
        with spawn_blocking(TOY) as client:
            clients.append(client)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with spawn_blocking(TOY) as client:
        clients.append(client)
    assert [one.client.connection.process.returncode for one in clients] == [-signal.SIGKILL, 0]


def test_a_daemon_that_is_killed_ends_a_subscription_and_another_one_goes_on_from_the_cursor(place: Place) -> None:
    place.script({"text": "Here I am."})
    with daemon(place) as client:
        session = client.open_session(cwd=place.workspace)["session"]
        client.prompt(session, "Are you there?")
        events = client.subscribe(session)
        assert next(events)["seq"] == 0
        os.kill(client.pid, signal.SIGKILL)
        with pytest.raises(ConnectionEndedError):
            list(events)
        cursor = events.cursor
        assert cursor.after == events.state.last > 0
    with daemon(place) as client:
        client.open_session(session)
        client.prompt(session, "And now?")
        assert next(client.subscribe(session, after=cursor))["seq"] == cursor.after + 1


def test_a_call_that_is_interrupted_is_cancelled_at_the_daemon() -> None:
    """Ctrl-C while a program waits."""
    with spawn_blocking(TOY) as client:

        def interrupt() -> None:
            while client.request("toy/seen")["began"] != ["wait"]:
                pass
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

        other = threading.Thread(target=interrupt)
        other.start()
        with pytest.raises(KeyboardInterrupt):
            client.request("toy/wait")
        other.join()
        while client.request("toy/seen")["cancelled"] != 1:
            pass


def test_a_call_from_another_thread_interrupts_a_turn_that_one_waits_for(place: Place) -> None:
    reasons: list[Any] = []
    with FakeProvider(answer(text("Half"), end="hang")) as provider:
        place.provider(provider.base_url)
        with daemon(place) as client:
            session = client.open_session(cwd=place.workspace)["session"]
            turn: int = client.start_turn(session, "go")["turn"]
            waiting = threading.Thread(target=lambda: reasons.append(client.wait_turn(session, turn)["data"]["reason"]))
            waiting.start()
            ended = client.interrupt(session, turn)
            waiting.join()
    assert reasons == [ended]
    assert json.dumps(ended).startswith('{"kind": "aborted"')
