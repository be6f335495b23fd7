"""`refold rebuild`: the exact bytes that were sent, from the log alone; sent again, they are the request they were."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from tests.support.chat_stream import DONE, calls, chunk, reply
from tests.support.chat_stream import call as call_entry
from tests.support.commands import Here
from tests.support.copies import Change, copied, of_a_later_encoder, with_another_body, with_another_request
from tests.support.fake_provider import FakeProvider, answer

CALLS = calls(call_entry(0, "c0", "read_file", '{"path":"animals.txt"}')) + chunk({}, "tool_calls") + DONE


@pytest.fixture
def provider() -> Iterator[FakeProvider]:
    """A provider that asks for a file, and then speaks of it."""
    with FakeProvider(answer(CALLS), answer(reply("That zebra “sleeps” 🙂."))) as played:
        yield played


def test_the_rebuilt_bytes_posted_again_are_the_bytes_that_were_sent(refold: Here, provider: FakeProvider) -> None:
    refold.place.provider(provider.base_url)
    session = refold("run", "What does the zebra do?\n\u2028é").session
    sent = [request.body for request in provider.requests]
    assert len(sent) == 2
    provider.play([answer(reply("again")), answer(reply("again"))])
    address = urlsplit(provider.base_url)
    for step in (1, 2):
        done = refold("rebuild", session, f"1.{step}")
        assert (done.code, done.err) == (0, "")
        connection = http.client.HTTPConnection(address.netloc)
        connection.request("POST", f"{address.path}/chat/completions", done.out, {"content-type": "application/json"})
        assert connection.getresponse().read().endswith(DONE)
        connection.close()
    assert [request.body for request in provider.requests[2:]] == sent
    assert not any(body.endswith(b"\n") for body in sent)


def test_a_rebuilt_body_needs_no_provider_and_no_configuration(refold: Here, provider: FakeProvider) -> None:
    refold.place.provider(provider.base_url)
    session = refold("run", "What does the zebra do?").session
    refold.place.configure("")
    assert refold("rebuild", session, "1.2").out == provider.requests[1].body


@pytest.mark.parametrize("which", ["1.3", "2.1", "999999999.1"])
def test_a_request_that_was_never_sent_is_told(refold: Here, which: str) -> None:
    session = refold("run", "go").session
    assert refold("rebuild", session, "1.2").code == 0
    done = refold("rebuild", session, which)
    assert (done.code, done.out) == (2, b"")
    assert done.err == f"refold: turn.mismatch: no request of step {which} is in this log\n"


def test_a_body_of_an_encoder_that_is_not_shipped_is_printed_and_the_doubt_told(refold: Here) -> None:
    session = refold("run", "go").session
    done = refold("rebuild", copied(refold.place, session, of_a_later_encoder), "1.1")
    assert (done.code, done.out) == (0, refold("rebuild", session, "1.1").out)
    assert done.err.startswith("refold: it was sent by chat-completions 1000, which this release does not have")


@pytest.mark.parametrize("change", [with_another_body, with_another_request])
def test_a_body_that_differs_from_what_was_sent_is_printed_and_ends_with_one(refold: Here, change: Change) -> None:
    session = refold("run", "go").session
    done = refold("rebuild", copied(refold.place, session, change), "1.1")
    assert (done.code, done.out) == (1, refold("rebuild", session, "1.1").out)
    assert done.err.startswith("refold: digest.mismatch: ")
