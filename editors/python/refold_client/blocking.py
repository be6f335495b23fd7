"""Owns the client for programs without an event loop: the same calls, each waiting for its answer.

with spawn_blocking(["refold", "serve"]) as client:
    session = client.open_session(cwd="/path/to/work")["session"]
    for event in client.subscribe(session):
        ...

Every call is the asynchronous client's own, run on an event loop in a thread of its own; nothing is implemented a second
time. Calls may come from several threads. A call that is interrupted (KeyboardInterrupt) is cancelled at the daemon.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import IO, Any, Concatenate, Literal, ParamSpec, TypeVar

from anyio import to_thread
from anyio.from_thread import BlockingPortal, start_blocking_portal

from refold_client.client import Chunks, Client, Json, spawn
from refold_client.client_errors import Cursor
from refold_client.client_questions import Approval
from refold_client.event_stream import Notices, Subscription

P = ParamSpec("P")
T = TypeVar("T")


def _wait(portal: BlockingPortal, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a call on the loop and wait for it; whatever interrupts the wait cancels the call."""
    future = portal.start_task_soon(call)
    try:
        return future.result()
    except BaseException:
        future.cancel()  # nothing happens to a call that failed by itself
        raise


def _blocking(
    method: Callable[Concatenate[Client, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[BlockingClient, P], T]:
    """Give the method of BlockingClient that runs this one of Client and waits for it."""

    @wraps(method)
    def call(self: BlockingClient, *given: P.args, **named: P.kwargs) -> T:
        return _wait(self.portal, lambda: method(self.client, *given, **named))

    return call


class BlockingClient:
    """A connection that `spawn_blocking` began. Methods, results and errors are those of Client.

    `client` is the asynchronous client behind it and `portal` the way to its loop, for what only that one can do, such as
    answering the daemon's requests.
    """

    def __init__(self, portal: BlockingPortal, client: Client) -> None:
        self.portal = portal
        self.client = client

    @property
    def server(self) -> Json:
        """The daemon's answer to `initialize`."""
        return self.client.server

    @property
    def pid(self) -> int:
        """The daemon's process."""
        return self.client.pid

    request = _blocking(Client.request)
    open_session = _blocking(Client.open_session)
    close_session = _blocking(Client.close_session)
    flush = _blocking(Client.flush)
    read = _blocking(Client.read)
    list_sessions = _blocking(Client.list_sessions)
    fork = _blocking(Client.fork)
    delete = _blocking(Client.delete)
    archive = _blocking(Client.archive)
    compact = _blocking(Client.compact)
    configure = _blocking(Client.configure)
    rename = _blocking(Client.rename)
    inject = _blocking(Client.inject)
    withdraw = _blocking(Client.withdraw)
    answer_approval = _blocking(Client.answer_approval)
    start_turn = _blocking(Client.start_turn)
    start_pending = _blocking(Client.start_pending)
    wait_turn = _blocking(Client.wait_turn)
    prompt = _blocking(Client.prompt)
    interrupt = _blocking(Client.interrupt)
    rebuild = _blocking(Client.rebuild)
    verify = _blocking(Client.verify)
    models = _blocking(Client.models)
    tools = _blocking(Client.tools)
    health = _blocking(Client.health)
    schema = _blocking(Client.schema)
    close = _blocking(Client.close)

    def on_approval(self, answers: Callable[[Approval], str | None] | None) -> None:
        """Have `answers` asked, in a thread of its own, whether calls that change something may run: it gives the id of one of
        the question's options, or None for the default. What it gives for a question that was settled elsewhere counts for
        nothing. Without one, such calls are denied."""

        async def ask(question: Approval) -> str | None:
            assert answers is not None
            return await to_thread.run_sync(answers, question, abandon_on_cancel=True)

        self.portal.call(self.client.on_approval, None if answers is None else ask)

    def subscribe(
        self,
        session: str,
        *,
        after: int | Literal["tail"] | Cursor = -1,
        writer: str | None = None,
        chunks: Chunks = "all",
    ) -> BlockingSubscription:
        """event/subscribe: follow a session's log behind `after`, or from a cursor of an earlier connection."""
        following = _wait(self.portal, lambda: self.client.subscribe(session, after=after, writer=writer, chunks=chunks))
        return BlockingSubscription(self.portal, following)

    def listen(self, method: str) -> BlockingNotices:
        """Iterate over the params of notifications that only inform, from now on. Raises KeyError for another method."""

        async def begin() -> Notices:
            return self.client.listen(method)

        return BlockingNotices(self.portal, _wait(self.portal, begin))


class BlockingSubscription:
    """A subscription to iterate over: each step waits for the next event. `state` is the asynchronous one, whose members
    (`cursor`, `last`, `tail`, `durable`, `caught_up`, `phase`, `writer`) can be read at any time."""

    def __init__(self, portal: BlockingPortal, state: Subscription) -> None:
        self.portal = portal
        self.state = state

    @property
    def cursor(self) -> Cursor:
        """Where to go on after the daemon was lost."""
        return self.state.cursor

    def __iter__(self) -> BlockingSubscription:
        return self

    def __next__(self) -> Json:
        """Give the next event. Raises what ended the subscription, once the events before that were given."""
        return _next(self.portal, self.state)

    def wait_durable(self, seq: int) -> None:
        """Wait until the daemon has told that the event `seq` is durable. Raises what ended the subscription."""
        _wait(self.portal, lambda: self.state.wait_durable(seq))

    def stop(self) -> None:
        """End the subscription; events that were not taken yet are dropped. Idempotent."""
        _wait(self.portal, self.state.stop)


class BlockingNotices:
    """Notifications to iterate over, in the order of arrival: each step waits for the next one."""

    def __init__(self, portal: BlockingPortal, notices: Notices) -> None:
        self.portal = portal
        self._notices = notices

    def __iter__(self) -> BlockingNotices:
        return self

    def __next__(self) -> Any:
        return _next(self.portal, self._notices)


@contextmanager
def spawn_blocking(
    command: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    stderr: int | IO[Any] | None = None,
    options: Json | None = None,
    name: str = "refold_client",
) -> Generator[BlockingClient]:
    """Start a daemon and begin a connection; at the end of the block close both. All is as with `spawn`."""
    with start_blocking_portal("asyncio") as portal:
        begun = spawn(command, env=env, cwd=cwd, stderr=stderr, options=options, name=name)
        with portal.wrap_async_context_manager(begun) as client:
            yield BlockingClient(portal, client)


_END: Any = object()


def _next(portal: BlockingPortal, items: Subscription | Notices) -> Any:
    async def take() -> Any:
        return await anext(items, _END)

    item = _wait(portal, take)
    if item is _END:
        raise StopIteration
    return item
