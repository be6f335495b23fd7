"""`refold verify`: what holds, what differs, what cannot be read; one session or all; how far a long check is."""

from __future__ import annotations

import os
import pty
from collections.abc import Callable, Iterator
from typing import TextIO

import lmdb
import msgspec
import pytest

from refold_protocol.ids import SessionId
from refold_server.cli.terminal import PROGRESS_EVENTS, OutputStream, show_progress
from refold_server.rpc.proof_methods import LogVerifyResult
from refold_storage.record_keys import session_key
from tests.support.commands import Here
from tests.support.copies import Change, copied, of_a_later_encoder, unchanged, with_another_body, with_another_request

REPLY = {"text": "Forty-two."}


@pytest.fixture
def session(refold: Here) -> str:
    """A session that is whole."""
    return refold("run", "Where is the zebra?").session


def test_a_whole_log_is_verified(refold: Here, session: str) -> None:
    events = len(refold.events(session))
    done = refold("verify", session)
    assert (done.code, done.err) == (0, "")
    assert done.lines == [f"verified 4/4 requests, {events} events  {session}"]
    assert refold("verify", session, "--strict").out == done.out
    (finding,) = refold("verify", session, "--json").values
    assert finding["session"] == session
    assert finding["verified"]
    assert finding["report"]["differences"] == []
    assert len(finding["report"]["headDigest"]) == 64


@pytest.mark.parametrize(("change", "check"), [(with_another_body, "body"), (with_another_request, "request")])
def test_a_difference_is_named_with_its_step_and_ends_with_one(refold: Here, session: str, change: Change, check: str) -> None:
    wrong = copied(refold.place, session, change)
    done = refold("verify", wrong)
    assert done.code == 1
    assert done.lines[0].startswith("DIFFERS  0/4 requests")
    assert [line.split(":")[1].strip() for line in done.lines[1:]] == [check] * 4
    assert "(step 1.1)" in done.lines[1]
    (finding,) = refold("verify", wrong, "--json").values
    assert not finding["verified"]
    assert [difference["step"] for difference in finding["report"]["differences"]] == [1, 2, 3, 4]


def test_an_encoder_that_is_not_shipped_is_reported_and_counts_only_when_strict(refold: Here, session: str) -> None:
    later = copied(refold.place, session, of_a_later_encoder)
    done = refold("verify", later)
    assert done.code == 0
    assert done.lines[0].endswith("(4 sent by encoders that this release does not have: the requests match)")
    strict = refold("verify", later, "--strict")
    assert strict.code == 1
    assert strict.lines[0].startswith("DIFFERS  0/4 requests")


def test_a_log_that_was_cut_off_is_whole_as_far_as_it_goes(refold: Here, session: str) -> None:
    assert refold("verify", copied(refold.place, session, unchanged, count=20)).code == 0


def test_all_sessions_are_checked_and_one_bad_one_spoils_the_result_and_not_the_others(refold: Here, session: str) -> None:
    good = refold("verify", "--all")
    assert (good.code, good.lines[-1]) == (0, "1 session checked")
    wrong = copied(refold.place, session, with_another_body)
    done = refold("verify", "--all")
    assert done.code == 1
    assert done.lines[0].endswith(f"  {wrong}")  # the latest first
    assert done.lines[-2].startswith("verified 4/4 requests")
    assert done.lines[-1] == "2 sessions checked, 1 not verified"
    assert [finding["verified"] for finding in refold("verify", "--all", "--json").values] == [False, True]


def test_a_store_without_sessions_is_whole(refold: Here, session: str) -> None:
    with environment(refold) as store:
        for name in (b"sessions", b"records", b"recent"):
            with store.begin(write=True) as transaction:
                transaction.drop(store.open_db(name, transaction), delete=False)
    done = refold("verify", "--all")
    assert (done.code, done.text) == (0, "0 sessions checked\n")


def test_c02_a_record_that_cannot_be_read_is_a_finding_and_the_others_are_checked(refold: Here, session: str) -> None:
    wrong = copied(refold.place, session, unchanged)
    with environment(refold) as store, store.begin(write=True) as transaction:
        transaction.put(session_key(SessionId(wrong)), b"{", db=store.open_db(b"sessions", transaction))
    done = refold("verify", "--all")
    assert done.code == 1
    assert done.lines[0].startswith("verified 4/4 requests")
    assert done.lines[1].startswith("unreadable (no id): session.corrupt: ")
    assert done.lines[2] == "2 sessions checked, 1 not verified"
    assert refold("verify", "--all", "--json").values[1]["session"] is None
    assert refold("verify", wrong).code == 1


def test_a_damaged_log_is_a_finding_and_the_others_are_checked(refold: Here, session: str) -> None:
    wrong = copied(refold.place, session, unchanged)
    with environment(refold) as store, store.begin(write=True) as transaction:
        records = store.open_db(b"records", transaction)
        with transaction.cursor(records) as cursor:
            assert cursor.last()  # the copy has the highest number
            value = bytearray(cursor.value())
            value[40] ^= 0xFF
            cursor.put(cursor.key(), bytes(value))
    done = refold("verify", "--all")
    assert done.code == 1
    assert done.lines[0].split(" ")[0] in ("unreadable", "DIFFERS")
    assert wrong in done.lines[0]
    assert "Traceback" not in done.err
    assert refold("verify", wrong).code == 1
    for command in (["log", wrong], ["rebuild", wrong, "1.4"], ["run", "go", "--session", wrong]):
        failed = refold(*command)
        assert failed.code == 7
        assert failed.err.startswith("refold: session.corrupt: ")


def environment(refold: Here) -> lmdb.Environment:
    """Open the store as a damaged disk would: past everything that watches over it."""
    return lmdb.open(str(refold.place.store), 1 << 30, max_dbs=8, lib_version=0)


def test_an_unknown_session_is_told(refold: Here, session: str) -> None:
    done = refold("verify", "none")
    assert (done.code, done.out) == (2, b"")
    assert done.err == "refold: session.unknown: there is no session none\n"


@pytest.fixture
def terminal() -> Iterator[tuple[TextIO, Callable[[], bytes]]]:
    """A terminal to write to, and what reads what it shows."""
    controller, end = pty.openpty()
    stream = os.fdopen(end, "w", encoding="utf-8")
    yield stream, lambda: os.read(controller, 65_536)
    stream.close()
    os.close(controller)


def test_a_long_check_shows_how_far_it_is_on_a_terminal(terminal: tuple[TextIO, Callable[[], bytes]]) -> None:
    stream, shown = terminal
    with show_progress(OutputStream(stream, best_effort=True), 2 * PROGRESS_EVENTS) as told:
        assert told is not None
        told(PROGRESS_EVENTS, 2 * PROGRESS_EVENTS)
        assert shown() == b"\r 50 % of 40000 events"
    assert shown() == b"\r\x1b[K"


def test_a_short_check_shows_nothing(terminal: tuple[TextIO, Callable[[], bytes]]) -> None:
    stream, _ = terminal
    with show_progress(OutputStream(stream, best_effort=True), PROGRESS_EVENTS) as told:
        assert told is None


def test_nobody_is_told_how_far_a_check_is_who_does_not_look(capfd: pytest.CaptureFixture[str]) -> None:
    with open(os.devnull, "w", encoding="utf-8") as nothing, show_progress(OutputStream(nothing), 2 * PROGRESS_EVENTS) as told:
        assert told is None


def test_a_finding_has_the_members_that_daemons_answer_with_and_says_of_which_session(refold: Here) -> None:
    session = refold("run", "Where is the zebra?").session
    (found,) = refold("verify", session, "--json").values
    told = msgspec.to_builtins(LogVerifyResult(found["events"], found["requests"], found["equal"], 0))
    assert found == {"session": session, "verified": True, "report": found["report"], **told}
    assert (found["requests"], found["equal"]) == (found["report"]["requests"], found["report"]["equal"])
