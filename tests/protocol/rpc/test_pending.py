"""Ids of requests that wait: ours are integers, theirs are kept apart by type, and each is answered once."""

from __future__ import annotations

from refold_protocol.rpc.connection_state import InFlight, OwnRequests


def test_our_ids_are_integers_that_never_come_twice() -> None:
    own: OwnRequests[str] = OwnRequests()
    ids = [own.allot("a"), own.allot("b")]
    assert own.settle(ids[0]) == "a"
    ids.append(own.allot("c"))
    assert ids == [1, 2, 3]


def test_a_reply_settles_its_request_once() -> None:
    own: OwnRequests[str] = OwnRequests()
    first = own.allot("a")
    assert own.settle(first) == "a"
    assert own.settle(first) is None


def test_a_reply_with_an_id_that_is_not_ours_settles_nothing() -> None:
    own: OwnRequests[str] = OwnRequests()
    own.allot("a")
    assert [own.settle(reply_id) for reply_id in ("1", 2, None)] == [None] * 3
    assert len(own) == 1


def test_at_the_end_all_who_wait_are_given_oldest_first() -> None:
    own: OwnRequests[str] = OwnRequests()
    for name in "abc":
        own.allot(name)
    own.settle(2)
    assert own.settle_all() == ("a", "c")
    assert not own.settle_all()


def test_a_second_request_with_an_id_in_flight_changes_nothing() -> None:
    jobs: InFlight[str] = InFlight()
    assert jobs.begin(1, "first")
    assert not jobs.begin(1, "second")
    assert jobs.get(1) == "first"


def test_a_text_and_a_number_are_two_ids() -> None:
    jobs: InFlight[str] = InFlight()
    assert jobs.begin(1, "number")
    assert jobs.begin("1", "text")
    jobs.finish(1)
    assert (jobs.get(1), jobs.get("1"), jobs.all()) == (None, "text", ("text",))


def test_an_id_is_free_again_after_its_reply() -> None:
    jobs: InFlight[str] = InFlight()
    jobs.begin(1, "first")
    jobs.finish(1)
    assert jobs.begin(1, "second")
