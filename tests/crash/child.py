"""Process that will be killed: a whole daemon over a real store, its client, a model that needs no network.

Everything between the wire and the disk is the real thing. Runs in a forked child, and changes nothing but that: the place
of the provider, the fail point that it is to end at, and a probe that tells of each accepted batch.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct

from refold_protocol.rpc.connection_state import Lifecycle
from refold_protocol.rpc.framing import FrameReader
from refold_server import services as host
from refold_server import services as stores
from refold_server.daemon import Daemon, places
from refold_server.rpc.connection import Endpoint
from refold_server.rpc.descriptors import Descriptors, Handover
from refold_storage.batch import Batch
from refold_storage.writer import WriteHandle
from tests.crash.model import SeededModel
from tests.crash.pipe import Pipe, now_ms
from tests.crash.points import STAGES, Point, arm, promise_too_early
from tests.crash.script import Person

CONFIG = """
model = "seeded/one"
[store]
map_bytes = 1048576
[prefix]
baseline = false
skills = false
[providers.seeded]
dialect = "chat-completions"
base_url = "http://127.0.0.1:9/v1"
[models."seeded/one"]
context_window = 100000000
chars_per_token = 1
[models."seeded/small"]
context_window = 30000
chars_per_token = 1
"""


class Ground(Struct, frozen=True):
    """The folders of one store's lives: everything is below `root`, and can be thrown away with it."""

    root: Path

    @property
    def store(self) -> Path:
        """Where the store is."""
        return self.root / "store"

    @property
    def workspace(self) -> Path:
        """Where the sessions work."""
        return self.root / "work"

    @property
    def config(self) -> Path:
        """The configuration of every process."""
        return self.root / "config.toml"

    def prepare(self) -> None:
        """Make it."""
        (self.workspace / "out").mkdir(parents=True)
        (self.workspace / "animals.txt").write_text("a horse\nthe zebra sleeps\n")
        (self.workspace / "horses.txt").write_text("a horse that is not a zebra\n" * 150)
        (self.workspace / "AGENTS.md").write_text("Be kind to zebras.\n")
        self.config.write_text(CONFIG)


class Life(Struct, frozen=True):
    """One life of a child: its seed, and the fail point at whose passing number `nth` it ends itself, if any."""

    seed: str
    point: Point | None = None
    nth: int = 1
    sabotage: bool = False
    """Whether this child promises what it has not done, as a test of the harness."""


def place_model(model: Any) -> None:
    """Have every session of this process ask `model`."""

    def open_provider(*given: object) -> Any:
        return model

    host.open_provider = open_provider


def run(ground: Ground, life: Life, descriptor: int) -> None:
    """Live in this process until killed."""
    logging.basicConfig(level=logging.WARNING)
    pipe, rng = Pipe(descriptor), random.Random(life.seed)
    aim = "" if life.point is None else life.point.name.partition(":")[0]
    place_model(SeededModel(pipe, rng, life.seed, 0.6 if aim in ("approval", "call") else 0.3))
    stores.open_store = partial(stores.open_store, fail_point=STAGES)
    tell_of_accepted(pipe)
    arm(pipe, life.point, life.nth)
    if life.sabotage:
        promise_too_early()
    asyncio.run(serve(ground, Person(pipe, rng, str(ground.workspace), aim)))


async def serve(ground: Ground, person: Any) -> None:
    """Serve one client on the wire in this process until it is done, then end the connection as a client does."""
    endpoint = Endpoint(person.client.line)
    daemon = Daemon(endpoint, places((str(ground.store), str(ground.config))))
    handover = Handover(Descriptors(-1, -1), (), FrameReader(), Lifecycle())
    async with asyncio.TaskGroup() as group:
        group.create_task(daemon.run(handover))
        await person.live()
        person.client.line.end()


def tell_of_accepted(pipe: Pipe, also: Callable[[], None] = lambda: None) -> None:
    """Say of each batch, the moment it was accepted, where its log ends then; and call `also`."""
    inner = WriteHandle.accept

    @functools.wraps(inner)
    def accept(self: WriteHandle, batch: Batch) -> None:
        inner(self, batch)
        if batch.events:
            pipe.say("+", f"{self.id} {batch.events[-1].seq} {now_ms()}".encode())
            also()

    WriteHandle.accept = accept
