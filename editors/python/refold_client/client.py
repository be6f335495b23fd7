"""Owns the client's side of a question: what a person is asked about a call that changes something, and who answers.

A client without a handler is asked too, and says that it does not answer: the daemon denies the call then, and says so to the
model. A question that was settled elsewhere cancels the handler.

Owns the client's calls: one method for each thing that a person or a script does with a session.

Thin on purpose: results are the JSON objects of the protocol, events are the JSON of the log. Keeps no truth: whatever it
knows of a session it asks for.

Owns the beginning and the end of a connection: the process, `initialize`, and what is left of both at the end of a block.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any, Literal, TypeAlias

import anyio

from refold_client.client_connection import Connection, Json
from refold_client.client_errors import ConnectionEndedError, Cursor, RpcError, SubscriptionEndedError
from refold_client.client_questions import Approval
from refold_client.client_results import Health, ModelList, Rebuilt, RequestList, Schema, SessionList, ToolList, Verified
from refold_client.event_stream import Notices, Subscription

OnApproval: TypeAlias = Callable[[Approval], Awaitable[str | None]]
"""Answers a question with the id of an option; None is the default."""


class ApprovalHandler:
    """Whoever answers the questions of one connection, if anybody does."""

    def __init__(self) -> None:
        self.answers: OnApproval | None = None

    async def __call__(self, question: Any) -> Any:
        """Give the reply to `approval/request`. Raises RpcError (method not found) where nobody answers questions."""
        if self.answers is None:
            raise RpcError({"code": -32601, "message": "this client does not answer questions (on_approval)"})
        chosen = await self.answers(question)
        return {"option": question["default"] if chosen is None else chosen}


IfRunning: TypeAlias = Literal["error", "queue", "steer"]
Chunks: TypeAlias = Literal["all", "live", "none"]

INFORMING = ("sessions/changed", "session/trouble", "$/progress", "window/logMessage", "$/logTrace")
"""Notifications that only inform: a client that does not listen loses nothing that the log does not hold."""


class Client:
    """A connection that `spawn` began. `server` is the daemon's answer to `initialize`."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.server: Json = {}
        self._subscriptions: dict[int, Subscription] = {}
        connection.on_notification("session/events", self._take_events)
        self._approvals = ApprovalHandler()
        connection.on_request("approval/request", self._approvals)
        self._listening: dict[str, list[Notices]] = {method: [] for method in INFORMING}
        for method in INFORMING:
            connection.on_notification(method, partial(self._inform, method))

    @property
    def pid(self) -> int:
        """The daemon's process."""
        return self.connection.process.pid

    async def request(self, method: str, params: Any = None) -> Any:
        """Call any method. Raises RpcError, ConnectionEndedError and UnclaimedMessageError."""
        return await self.connection.request(method, params)

    async def open_session(
        self,
        session: str | None = None,
        *,
        cwd: str | Path | None = None,
        mode: Literal["write", "read"] = "write",
        **settings: Any,
    ) -> Json:
        """session/open: one that exists, or with `cwd` a new one, with `title`, `model`, `permissions`, `limits`,
        `compaction`."""
        given = _present(session=session, cwd=None if cwd is None else str(cwd), **settings)
        return await self.request("session/open", given | {"mode": mode})

    async def close_session(self, session: str, *, cancel: bool = False) -> None:
        """session/close."""
        await self.request("session/close", {"session": session, "cancel": cancel})

    async def flush(self, session: str, up_to: int | None = None) -> int:
        """session/flush: give the seq of the last durable event."""
        return (await self.request("session/flush", _present(session=session, upTo=up_to)))["durable"]

    async def read(self, session: str, view: str, *, at: int | None = None, page: Json | None = None) -> Json:
        """session/read: give the view, with `next` where there is more."""
        return await self.request("session/read", _present(session=session, view=view, at=at, page=page))

    async def list_sessions(self, *, limit: int = 50, **filters: Any) -> SessionList:
        """session/list: the latest active first; filters are `cwd`, `text`, `archived`, `moved`, `cursor`."""
        return await self.request("session/list", {"limit": limit} | _present(**filters))

    async def fork(self, session: str, *, at: int | None = None, title: str | None = None, cwd: str | None = None) -> Json:
        """session/fork: give the new session's id and tail."""
        return await self.request("session/fork", {"session": session} | _present(at=at, title=title, cwd=cwd))

    async def rehome(self, session: str, cwd: str) -> None:
        """session/rehome: let the session go on in another folder."""
        await self.request("session/rehome", {"session": session, "cwd": cwd})

    async def delete(self, session: str) -> None:
        """session/delete: for good."""
        await self.request("session/delete", {"session": session})

    async def archive(self, session: str, *, archived: bool = True) -> None:
        """session/archive."""
        await self.request("session/archive", {"session": session, "archived": archived})

    async def compact(self, session: str, instructions: str | None = None, *, token: str | int | None = None) -> Json:
        """session/compact: have the history summed up for the model; give `seq`, `tokens` and `shadowedTokens` once the summary
        is in place. `token` asks for `$/progress`."""
        given = _present(session=session, instructions=instructions, workDoneToken=token)
        return await self.request("session/compact", given)

    async def configure(self, session: str, **patch: Any) -> Json:
        """session/configure: give the settings in force and the seq of their record."""
        return await self.request("session/configure", {"session": session, "patch": patch})

    async def rename(self, session: str, title: str) -> int:
        """session/rename: give the seq of its record."""
        return (await self.request("session/rename", {"session": session, "title": title}))["seq"]

    async def inject(self, session: str, text: str, *, kind: str = "client", name: str | None = None) -> Json:
        """session/inject: tell the model something without asking anything."""
        source = _present(kind=kind, name=name)
        return await self.request("session/inject", {"session": session, "content": _text(text), "source": source})

    async def withdraw(self, session: str, input_id: str) -> int:
        """input/withdraw: take back an input that waits; give the seq of its record."""
        return (await self.request("input/withdraw", {"session": session, "input": input_id}))["seq"]

    async def start_turn(
        self,
        session: str,
        text: str,
        *,
        if_running: IfRunning = "error",
        key: str | None = None,
        token: str | int | None = None,
    ) -> Json:
        """turn/start: give `input`, `seq` and, unless it is queued, `turn`, once the prompt is on disk. `token` asks for
        `$/progress`; the same `key` again gives the first reply again."""
        waits = None if if_running == "error" else if_running
        given = _present(session=session, content=_text(text), ifRunning=waits, key=key, workDoneToken=token)
        return await self.request("turn/start", given)

    async def start_pending(self, session: str, input_id: str) -> Json:
        """turn/start of an input that waits since the session was open last."""
        return await self.request("turn/start", {"session": session, "input": input_id})

    async def wait_turn(self, session: str, turn: int | None = None, *, input_id: str | None = None) -> Json:
        """turn/wait: give the `turn/end` event."""
        return await self.request("turn/wait", _present(session=session, turn=turn, input=input_id))

    async def prompt(self, session: str, text: str) -> Json:
        """Start a turn and wait for it: give the `turn/end` event."""
        started = await self.start_turn(session, text)
        return await self.wait_turn(session, input_id=started["input"])

    async def interrupt(self, session: str, turn: int, *, withdraw_queued: bool = False) -> Json | None:
        """turn/interrupt: give the reason with which the turn ended."""
        given = _present(session=session, turn=turn, withdrawQueued=withdraw_queued or None)
        return (await self.request("turn/interrupt", given))["reason"]

    async def answer_approval(
        self, session: str, approval: str, outcome: Literal["allowed", "denied"], *, scope: Literal["once", "session"] = "once"
    ) -> int:
        """approval/answer: settle an open question; give the seq of its record."""
        given = {"session": session, "approval": approval, "outcome": outcome, "scope": scope}
        return (await self.request("approval/answer", given))["seq"]

    def on_approval(self, answers: OnApproval | None) -> None:
        """Have `answers` asked whether calls that change something may run: it gives the id of one of the question's options,
        or None for the default. It is cancelled when the question is settled elsewhere. Without one, such calls are denied.

        Where a person answers: the question takes no focus, plain typing is no answer, and nothing is allowed before all of
        the question's subject was shown."""
        self._approvals.answers = answers

    async def subscribe(
        self,
        session: str,
        *,
        after: int | Literal["tail"] | Cursor = -1,
        writer: str | None = None,
        chunks: Chunks = "all",
    ) -> Subscription:
        """event/subscribe: follow a session's log behind `after`, or from a cursor of an earlier connection."""
        if isinstance(after, Cursor):
            after, writer = after.after, after.writer
        made: list[Subscription] = []

        def claim(reply: Json) -> None:
            begin: int = reply["tail"] if isinstance(after, str) else after
            subscription = Subscription(session, begin, reply, self._unsubscribe, whole=chunks == "all")
            self._subscriptions[subscription.id] = subscription
            made.append(subscription)

        params = _present(session=session, after=after, writer=writer, chunks=None if chunks == "all" else chunks)
        await self.connection.request("event/subscribe", params, claim=claim)
        return made[0]

    async def rebuild(self, session: str, turn: int, step: int) -> Rebuilt:
        """request/rebuild: give the exact body of a step's request, and how it compares with what was recorded."""
        return await self.request("request/rebuild", {"session": session, "turn": turn, "step": step})

    async def requests(self, session: str, *, after: int | None = None, limit: int | None = None) -> RequestList:
        """request/list: one row for each request that was sent."""
        return await self.request("request/list", _present(session=session, after=after, limit=limit))

    async def verify(self, session: str) -> Verified:
        """log/verify: prove a log against its own records."""
        return await self.request("log/verify", {"session": session})

    async def models(self) -> ModelList:
        """model/list: the configured models and the providers behind them."""
        return await self.request("model/list", {})

    async def tools(self) -> ToolList:
        """tool/list: the tools that models are told of."""
        return await self.request("tool/list", {})

    async def health(self) -> Health:
        """daemon/health: how the daemon and its store are."""
        return await self.request("daemon/health", {})

    async def schema(self) -> Schema:
        """daemon/schema: the table of methods as JSON Schema."""
        return await self.request("daemon/schema", {})

    def listen(self, method: str) -> Notices:
        """Iterate over the params of notifications that only inform (`sessions/changed`, `$/progress`, …), from now on.
        Raises KeyError for a method that is not one of them."""
        notices = Notices()
        self._listening[method].append(notices)
        return notices

    async def close(self) -> int:
        """End the daemon in good order and give its exit code. Raises UnclaimedMessageError for what nobody claimed."""
        await self.connection.request("shutdown")
        await self.connection.notify("exit")
        code = await self.connection.process.wait()
        self.connection.complain()
        return code

    async def receive(self) -> None:
        """Take what the daemon sends until it is gone; then every subscription ends behind the events that came."""
        try:
            await self.connection.run()
        finally:
            for subscription in self._subscriptions.values():
                subscription.fail(ConnectionEndedError("the daemon is gone"))
            for listeners in self._listening.values():
                for notices in listeners:
                    notices.end()

    def _inform(self, method: str, params: Any) -> bool:
        for notices in self._listening[method]:
            notices.take(params)
        if method == "session/trouble" and (ended := self._subscriptions.get(params.get("subscription"))) is not None:
            ended.fail(SubscriptionEndedError(params["kind"], params["message"]))
        return True

    def _take_events(self, notice: Any) -> bool:
        subscription = self._subscriptions.get(notice["subscription"])
        if subscription is None:
            return False
        subscription.take(notice)
        return True

    async def _unsubscribe(self, subscription: int) -> None:
        # It stays known: notifications that were under way before the daemon heard of this are still its own.
        await self.connection.request("event/unsubscribe", {"subscription": subscription})


def _present(**members: Any) -> Json:
    return {name: value for name, value in members.items() if value is not None}


def _text(text: str) -> list[Json]:
    return [{"type": "text", "text": text}]


@asynccontextmanager
async def spawn(
    command: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    stderr: int | IO[Any] | None = None,
    options: Json | None = None,
    name: str = "refold_client",
) -> AsyncGenerator[Client]:
    """Start a daemon and begin a connection; at the end of the block close both.

    `options` are `initializationOptions`, `stderr` is where the daemon's standard error goes (default: ours). A block that
    ends with an error kills the daemon by its pid; one that ends well closes it, unless `close` was called or the daemon
    is gone already. Raises RpcError when `initialize` is refused, ConnectionEndedError when the daemon ends instead.
    """
    process = await anyio.open_process(command, env=env, cwd=cwd, stderr=stderr)
    connection = Connection(process)
    client = Client(connection)
    receiving = asyncio.create_task(client.receive())
    try:
        client.server = await connection.request("initialize", _initialize_params(name, options))
        await connection.notify("initialized", {})
        yield client
        if not connection.ended:
            await client.close()
        await receiving
        connection.complain()
    finally:
        receiving.cancel()
        if process.returncode is None:
            process.kill()
        with anyio.CancelScope(shield=True):
            await asyncio.wait({receiving})
            await process.aclose()


def _initialize_params(name: str, options: Json | None) -> Json:
    params: Json = {"processId": os.getpid(), "clientInfo": {"name": name}, "capabilities": {}}
    return params if options is None else params | {"initializationOptions": options}
