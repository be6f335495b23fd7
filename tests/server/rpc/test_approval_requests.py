"""Asking a client, where its answers come at odd moments: too late, never, about sessions of a connection that is over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from msgspec import Raw

from refold_protocol.rpc.wire_errors import ErrorObject
from refold_protocol.session.events import AbortCause, ApprovalDecided
from refold_protocol.session.messages import Source
from refold_server.loop.approvals import GONE
from refold_server.rpc.approval_methods import ApprovalRequestParams, ApprovalRequests
from refold_server.rpc.client_requests import PeerError, PeerGoneError
from refold_server.sessions.session import Session
from tests.support.loop_host import ScriptedHost, ScriptedProvider, calls, says
from tests.support.loops import echo, scripted_session, turn

pytestmark = pytest.mark.anyio

CLIENT = Source("client", "an editor")
ONCE = Raw(b'{"option":"once"}')


class Client:
    """A client that is asked; each request waits in `replies` until the test answers or fails it."""

    def __init__(self) -> None:
        self.asked: list[ApprovalRequestParams] = []
        self.replies: list[asyncio.Future[Raw]] = []
        self._news = asyncio.Event()

    async def ask(self, method: str, params: object) -> Raw:
        assert method == "approval/request"
        assert isinstance(params, ApprovalRequestParams)
        self.asked.append(params)
        self.replies.append(asyncio.get_running_loop().create_future())
        self._news.set()
        return await self.replies[-1]

    async def until_asked(self, times: int = 1) -> None:
        while len(self.replies) < times:
            self._news.clear()
            await self._news.wait()


@asynccontextmanager
async def asking() -> AsyncGenerator[tuple[Session, Client, ApprovalRequests, ScriptedHost]]:
    """A session whose model calls a tool that asks, and a connection that watches it."""
    host = ScriptedHost(ScriptedProvider(calls(("c1", "write", "{}")), says("done")), {"write": echo})
    host.alone = host.asking = {"write"}
    client = Client()
    async with asyncio.TaskGroup() as group, scripted_session(host) as session:
        yield session, client, ApprovalRequests(client.ask, group, CLIENT), host


def decisions(session: Session) -> list[tuple[str, Source]]:
    """Outcome and author of every decision."""
    found = (event.data for event in session.session_log.handle.read())
    return [(data.outcome, data.by) for data in found if isinstance(data, ApprovalDecided)]


async def test_an_answer_in_the_moment_in_which_the_question_is_settled_counts_for_nothing() -> None:
    async with asking() as (session, client, requests, host):
        requests.watch(session)
        running = asyncio.create_task(turn(session))
        await client.until_asked()
        question = session.instance.approvals.open[0]
        client.replies[0].set_result(ONCE)  # not seen yet by whoever asked
        session.instance.approvals.answer(question.id, "denied", "once", Source("cli"))
        await running
        assert decisions(session) == [("denied", Source("cli"))]
        assert host.ran == []


async def test_an_error_reply_denies_in_the_client_s_name() -> None:
    async with asking() as (session, client, requests, host):
        requests.watch(session)
        running = asyncio.create_task(turn(session))
        await client.until_asked()
        client.replies[0].set_exception(PeerError(ErrorObject(-32601, "no such method")))
        await running
        assert decisions(session) == [("denied", CLIENT)]
        assert host.ran == []


async def test_asked_again_only_the_last_request_is_listened_to() -> None:
    async with asking() as (session, client, requests, host):
        requests.watch(session)
        running = asyncio.create_task(turn(session))
        await client.until_asked()
        requests.ask_again(session)
        await client.until_asked(2)
        assert client.replies[0].cancelled()
        assert client.asked[0].approval == client.asked[1].approval
        client.replies[1].set_result(ONCE)
        await running
        assert host.ran == [("c1", "write")]
        requests.ask_again(session)
        assert len(client.asked) == 2


async def test_a_connection_that_is_over_leaves_the_question_to_its_end() -> None:
    async with asking() as (session, client, requests, host):
        requests.watch(session)
        running = asyncio.create_task(turn(session))
        await client.until_asked()
        client.replies[0].set_exception(PeerGoneError("gone"))
        for _ in range(5):
            await asyncio.sleep(0)
        assert len(session.instance.approvals.open) == 1
        await session.interrupt(1, AbortCause("disposed"))
        await running
        assert [outcome for outcome, _ in decisions(session)] == ["cancelled"]
        assert host.ran == []


async def test_a_session_that_is_opened_when_the_client_is_gone_already_asks_nobody() -> None:
    async with asking() as (session, client, requests, host):
        requests.leave(())
        requests.watch(session)
        await turn(session)
        assert decisions(session) == [("denied", GONE)]
        assert client.asked == []
        assert host.ran == []
