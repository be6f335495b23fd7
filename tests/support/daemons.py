"""Whole daemons for tests: `refold serve` over real pipes, with a store, a workspace and a configuration of their own.

Replies are scripted (the rehearsal provider's script) or played by a fake provider, where a reply must wait until the test
says go on. What a daemon recorded is read here by another process than the one that wrote it: this one.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from refold_client import Client, ConnectionEndedError, Subscription, UnclaimedMessageError, spawn
from refold_protocol.ids import SessionId
from refold_server.clock import epoch_ms, uuid7
from refold_storage.lmdb_store import open_store

Json = dict[str, Any]

SERVE = (sys.executable, "-m", "refold_server", "serve")

ONCE = "[retry]\nattempts = 1"
"""For a configuration in which a failure is the end of a request."""

WAIT_S = 60
"""How long a command may take before it counts as hanging."""

PLAIN_OPTIONS = '{ roles = "as-they-come", call_ids = "as-given", tool_names = "as-given" }'
"""Options of a provider, in TOML, with which bodies hold messages, ids and names as the log does."""


class Place:
    """Where a test's daemons live. They share the store, so one can go on where another left."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.store = root / "store"
        self.config = root / "refold.toml"
        self.errors = root / "stderr.txt"
        """What its daemons wrote to standard error."""
        self.workspace = root / "ws"
        self.workspace.mkdir()
        (self.workspace / "animals.txt").write_text("a horse\nthe zebra sleeps\n")
        self.configure("")

    @property
    def env(self) -> dict[str, str]:
        """An environment in which nothing of the machine's own configuration is found."""
        env = {name: value for name, value in os.environ.items() if not name.startswith("REFOLD_")}
        return env | {"XDG_CONFIG_HOME": str(self.root), "XDG_DATA_HOME": str(self.root), "REFOLD_LIVE_CHECK": "always"}

    @property
    def daemon_env(self) -> dict[str, str]:
        """The same, with the configuration file of this place."""
        return self.env | {"REFOLD_CONFIG": str(self.config)}

    def configure(self, text: str) -> None:
        """Write the configuration file of all daemons that start from now on."""
        self.config.write_text(text)

    def script(self, *replies: Json, more: str = "") -> None:
        """Have the rehearsal provider give these replies, one a request, each request sent once; `more` is put before the
        model's table."""
        path = self.root / "script.jsonl"
        path.write_text("".join(json.dumps(reply) + "\n" for reply in replies))
        self.configure(f'{more}\n{ONCE}\n[models."rehearsal/workspace"]\nextra = {{ script = {json.dumps(str(path))} }}\n')

    def provider(
        self, base_url: str, more: str = "", *, name: str = "fake", retry: str = ONCE, window: int | None = 1_000_000_000
    ) -> None:
        """Have every session ask the provider at that address for its model `small`; `more` stands between the model's name
        and the provider's table, `retry` says how often a request is sent. Messages are sent as they come, so that a body shows
        what the log holds. The model has a `window` that no test fills, unless `more` speaks of it; None: nobody stated one."""
        table = f'[providers.{name}]\ndialect = "chat-completions"\nbase_url = "{base_url}"\noptions = {PLAIN_OPTIONS}\n'
        stated = "" if window is None or "[models." in more else f'[models."{name}/small"]\ncontext_window = {window}\n'
        self.configure(f'model = "{name}/small"\n{more}\n{retry}\n{stated}{table}')

    @asynccontextmanager
    async def daemon(self, command: Sequence[str] = SERVE, **options: Any) -> AsyncGenerator[Client]:
        """Start a daemon and begin a connection; `options` are further `initializationOptions`."""
        given = {"store": str(self.store), **options}
        with self.errors.open("ab") as errors:
            async with spawn(command, env=self.daemon_env, stderr=errors, options=given) as client:
                yield client

    async def lines(self, session: str) -> list[bytes]:
        """Give the exact lines of the events that are on disk now. Raises SessionNotFoundError."""
        store = await open_store(self.store, new_uuid=uuid7, clock=epoch_ms, client="test", create=False)
        try:
            handle = await store.open(SessionId(session), "read")
            return handle.lines(0)
        finally:
            await store.close()

    async def recorded(self, session: str) -> list[Json]:
        """Give the events that are on disk now. Raises SessionNotFoundError."""
        return [json.loads(line) for line in await self.lines(session)]

    def refold(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run another command on the same store and configuration."""
        command = [sys.executable, "-m", "refold_server", *arguments, "--store", str(self.store), "--config", str(self.config)]
        return subprocess.run(
            command, cwd=self.workspace, env=self.env, capture_output=True, text=True, timeout=WAIT_S, check=False
        )

    async def verify(self, session: str) -> Json:
        """Run `refold verify` on a session beside whoever writes it; give its report, which must find no difference."""
        done = await asyncio.to_thread(self.refold, "verify", session, "--json")
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)["report"]


async def new_session(client: Client, place: Place, **settings: Any) -> str:
    """Begin a session in the place's workspace; give its id."""
    return (await client.open_session(cwd=place.workspace, **settings))["session"]


async def until(events: Subscription, kind: str, **data: Any) -> list[Json]:
    """Take events up to the first of that type with these members in its data; give all that were taken."""
    taken: list[Json] = []
    async for event in events:
        taken.append(event)
        if event["type"] == kind and data.items() <= event["data"].items():
            break
    return taken


async def text_so_far(events: Subscription, text: str) -> list[Json]:
    """Take events until the chunks among them say `text`; give all that were taken."""
    taken: list[Json] = []
    said = ""
    while said != text:
        event = await anext(events)
        taken.append(event)
        said += event["data"].get("chunk", {}).get("text", "")
    return taken


async def kill(client: Client) -> None:
    """End a daemon by SIGKILL, and wait until all that it said has come."""
    client.connection.process.kill()
    assert await gone(client) == -signal.SIGKILL


async def gone(client: Client) -> int:
    """Wait until a daemon has ended and all that it said has come; give its exit code. It may end inside a frame only when
    it is killed."""
    code = await client.connection.process.wait()
    try:
        await client.request("refold/none")
    except ConnectionEndedError:
        return code
    except UnclaimedMessageError as error:
        if code == -signal.SIGKILL and error.messages == ["the output ended inside a frame"]:
            return code
        raise
    raise AssertionError("a daemon that is gone answered")


def types(events: Sequence[Json]) -> list[str]:
    """Give the types of events, chunks of one run as one."""
    names: list[str] = []
    for event in events:
        if not (event["type"] == "assistant/chunk" and names and names[-1] == event["type"]):
            names.append(event["type"])
    return names


@asynccontextmanager
async def nothing_becomes_durable(place: Place) -> AsyncGenerator[None]:
    """Hold the store's write lock: commits of all other processes wait."""
    store = await open_store(place.store, new_uuid=uuid7, clock=epoch_ms, client="test", create=False)
    with store.environment.writing():
        yield
    await store.close()


def endless_search(place: Place) -> None:
    """Put a file into the workspace on which the regular expression `(a+)+$` takes longer than any test."""
    (place.workspace / "long.txt").write_text("a" * 64 + "!\n")


class ToolProcess:
    """A process of a tool that runs in a daemon. `ended` waits for its end."""

    def __init__(self, pid: int) -> None:
        self._descriptor = os.pidfd_open(pid)

    async def ended(self) -> None:
        """Wait until it is no more."""
        await asyncio.to_thread(select.select, [self._descriptor], [], [])
        os.close(self._descriptor)


async def tool_process(client: Client) -> ToolProcess:
    """Wait until the daemon has a child, as a running search by a regular expression has."""
    return ToolProcess(await asyncio.to_thread(_first_child, client.pid))


def _first_child(pid: int) -> int:
    while True:
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(FileNotFoundError):  # a thread that ended meanwhile
                if children := (task / "children").read_text().split():
                    return int(children[0])
