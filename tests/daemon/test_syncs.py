"""What a client or a provider is told lies on the disk before, and the loop never waits for a disk: seen from outside.

Invariant: Each reply and each request to a provider leaves behind its sync, and the event loop's thread waits for no disk.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.support.chat_stream import reply
from tests.support.daemons import SERVE, Place, new_session, until
from tests.support.fake_provider import FakeProvider, answer
from tests.support.system_calls import HOW_TO_GET_STRACE, Call, Commit, can_trace, commits, read_calls, syncs, traced

pytestmark = pytest.mark.anyio

TURNS = 3


def saying(calls: Sequence[Call], name: str, *texts: str) -> list[Call]:
    """The calls of one kind whose data holds these texts."""
    return [call for call in calls if call.name == name and all(text in call.text for text in texts)]


def between(made: Sequence[Commit], first: int, last: int) -> int:
    """How many commits lie wholly between two lines."""
    return sum(first < commit.began and commit.ended < last for commit in made)


async def test_each_reply_and_each_request_to_the_provider_comes_after_its_sync_and_no_sync_is_the_loops(place: Place) -> None:
    """Must show 4. The trace is one of system calls, so it is the kernel's word and not ours."""
    if not can_trace():
        pytest.skip(HOW_TO_GET_STRACE)
    trace = place.root / "trace.txt"
    async with FakeProvider(*(answer(reply(f"Reply {number}.")) for number in range(TURNS))) as provider:
        place.provider(provider.base_url)
        async with place.daemon(traced(SERVE, trace)) as client:
            loop_thread = client.pid
            session = await new_session(client, place)
            events = await client.subscribe(session)
            for number in range(TURNS):
                await client.prompt(session, f"prompt {number}")
                await until(events, "turn/end")
    calls = read_calls(trace.read_text())
    made = commits(calls)
    asked = saying(calls, "read", r"\"method\":\"turn/start\"")
    accepted = saying(calls, "write", r"\"result\":{\"input\":")
    dispatched = saying(calls, "sendto", '"POST ')
    replied = [saying(calls, "recvfrom", f"Reply {number}.")[-1] for number in range(TURNS)]
    told = saying(calls, "write", r"{\"type\":\"turn/end\"")
    assert (len(asked), len(accepted), len(dispatched)) == (TURNS, TURNS, TURNS)
    for number in range(TURNS):
        assert between(made, asked[number].ended, accepted[number].began) >= 1, "the input, before it is answered"
        assert between(made, asked[number].ended, dispatched[number].began) >= 2, "then the request, before it leaves"
        ends = [call.began for call in told if rf"\"turn\":{number + 1}," in call.text]
        assert len(ends) == 2, "the notification and the answer of `turn/wait`"
        assert between(made, replied[number].ended, min(ends)) >= 1, "the end, before anybody is told of it"
    assert syncs(calls) != []
    assert loop_thread not in {call.thread for call in syncs(calls)}
    assert {call.thread for call in dispatched} == {loop_thread}, (
        "else the loop runs elsewhere, and the line above says nothing"
    )
