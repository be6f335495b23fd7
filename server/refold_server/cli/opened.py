"""Owns what a command needs around it: the configuration, the store, the sessions, all closed at the end."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager, nullcontext, redirect_stdout
from pathlib import Path
from typing import Any, Final

import anyio
from msgspec import Struct
from msgspec.structs import replace

from refold_protocol.errors import RefoldError
from refold_protocol.session.events import AbortCause
from refold_server.cli.failures import single
from refold_server.config import Config, ToolsConfig
from refold_server.config_file import load_config
from refold_server.host import Surroundings, surroundings
from refold_server.sessions.registry import Sessions
from refold_server.stores import open_configured_store
from refold_storage.interface import Store

_TOLD: Final = "refold_server.sessions."
"""Loggers of errors that whoever waits for a turn gets as exceptions too."""


class Opened(Struct, frozen=True):
    """A command's surroundings. `sessions` run their turns in a task group that ends with the command."""

    config: Config
    store: Store
    sessions: Sessions
    shared: Surroundings


def read_config(options: argparse.Namespace, *, model: str | None = None) -> Config:
    """Read the configuration that `--config`, `--store` and the environment name, and let `log.level` hold from here on.
    Raises ConfigError."""
    named = None if options.config is None else Path(options.config)
    config = load_config(named, os.environ, store=options.store, model=model)
    _tell_logs(config.log.level.upper())
    return config


def _tell_logs(level: str) -> None:
    """Show what is logged on standard error, but for what sessions say of an error that the command itself will tell."""
    root = logging.getLogger()
    if not root.handlers:  # else the program that this command runs in has its own idea
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("refold: %(levelname)s: %(name)s: %(message)s"))
        handler.addFilter(lambda record: not record.name.startswith(_TOLD) or record.exc_info is not None)
        root.addHandler(handler)
        root.setLevel(level)


@asynccontextmanager
async def opened(
    config: Config, *, create: bool = False, plugins: bool = True, turns: bool = False
) -> AsyncGenerator[Opened, None]:
    """Open the store (a new one only with `create`) and give a command its surroundings, with the user's plugins unless it
    needs none. Raises what opening raises; at the end turns are stopped, sessions flushed and closed, and the first trouble of
    that is raised. What plugins print while they are loaded goes to standard error, as does all that is printed to
    `sys.stdout` while a command runs `turns`: it takes its own stream before."""
    with redirect_stdout(sys.stderr):
        shared = await surroundings(config) if plugins else Surroundings(replace(config, tools=ToolsConfig(())))
    try:
        with redirect_stdout(sys.stderr) if turns else nullcontext():
            async with _running(config, shared, create=create) as around:
                yield around
    finally:
        with anyio.CancelScope(shield=True):
            await shared.close()


@asynccontextmanager
async def _running(config: Config, shared: Surroundings, *, create: bool) -> AsyncGenerator[Opened, None]:
    store = await open_configured_store(config.store, create=create, client="refold command")
    troubles: list[RefoldError] = []
    try:
        async with anyio.create_task_group() as tasks:

            def spawn(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
                tasks.start_soon(work)

            sessions = Sessions(store, shared.host, spawn, plugins=shared.plugins)
            try:
                yield Opened(config, store, sessions, shared)
            finally:
                with anyio.CancelScope(shield=True):
                    troubles = await sessions.close_all(AbortCause("disposed"))
        if troubles:
            raise troubles[0]
    except ExceptionGroup as group:
        raise single(group) from None
    finally:
        with anyio.CancelScope(shield=True):
            await store.close()
