"""Owns the beginning and the end of a connection: the process, `initialize`, and what is left of both at the end of a block."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO, Any

import anyio

from refold_client.client import Client
from refold_client.connection import Connection, Json


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
