"""Owns `refold doctor`: how the installation, the configuration and the store are, and what to do about what is wrong.

Changes nothing: where there is no store, none is made. Never shows a key, nor runs the command that prints one.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import sys
from functools import partial
from importlib.metadata import version
from pathlib import Path

import msgspec
from msgspec.structs import replace

from refold_protocol.errors import ConfigError, RefoldError
from refold_protocol.ids import SessionId
from refold_protocol.rpc.initialize import VERSION
from refold_server.checks.examination import (
    ConfigInForce,
    Examination,
    LeaseHolder,
    OpenReader,
    StoreState,
    Versions,
    findings,
    trouble,
)
from refold_server.checks.plugins import examine_plugins
from refold_server.cli.exits import COMPLETED, INTERNAL
from refold_server.cli.interrupts import run_reading
from refold_server.cli.opened import opened, read_config
from refold_server.cli.report import report_lines
from refold_server.cli.screen import Screen
from refold_server.config import Config
from refold_server.config_file import config_path
from refold_server.sessions.models import provider_rows
from refold_storage.format import DATA_FILE
from refold_storage.health import Vitals
from refold_storage.interface import Store
from refold_storage.lease import Holding, holdings, lease_name


def command(options: argparse.Namespace) -> int:
    """Look at everything and tell it; exit code 1 when something is wrong."""
    return run_reading(partial(_command, options))


async def _command(options: argparse.Namespace) -> int:
    examined = await examine(options)
    screen = Screen(sys.stdout)
    if options.json:
        screen.put_bytes(msgspec.json.encode(examined) + b"\n")
    else:
        for line in report_lines(examined, screen.look):
            screen.line(line)
    screen.flush()
    return INTERNAL if examined.findings else COMPLETED


async def examine(options: argparse.Namespace) -> Examination:
    """Look at everything that `--config`, `--store` and the environment name. What cannot be looked at is a finding."""
    file, named_by = config_path(None if options.config is None else Path(options.config), os.environ)
    versions = Versions(VERSION, platform.python_version(), version("lmdb"), version("msgspec"))
    examined = Examination(versions, ConfigInForce(str(file), file.is_file(), named_by))
    try:
        config = read_config(options)
    except ConfigError as error:  # nothing else can be known then: not even where the store is
        return replace(examined, findings=(trouble(error),))
    keys = {row.name: row.key_env for row in config.providers if row.key_env is not None}
    examined = replace(examined, store_path=str(config.store.path), providers=provider_rows(config, os.environ))
    try:
        examined = await _with_store(examined, config)
    except RefoldError as error:  # what stands outside the store can be told all the same
        examined = replace(examined, findings=(trouble(error),))
    plugins, broken = await examine_plugins(config)
    found = (*examined.findings, *broken, *findings(examined, keys))
    return replace(examined, plugins=plugins, findings=found)


async def _with_store(examined: Examination, config: Config) -> Examination:
    folder = config.store.path.expanduser()
    examined = replace(examined, free_bytes=_free_bytes(folder))
    if not _holds_a_store(folder):
        return examined
    held = holdings(folder.resolve())
    async with opened(config, plugins=False) as around:
        names, unreadable = _surveyed(around.store)
        state = _state(around.store.vitals(), unreadable, config.store.max_bytes)
    return replace(examined, store=state, leases=tuple(_lease(one, names) for one in held))


def _free_bytes(folder: Path) -> int | None:
    for part in (folder, *folder.absolute().parents):
        try:
            return shutil.disk_usage(part).free
        except OSError:  # not there, or not to be seen: the folder that it will lie in tells as much
            continue
    return None


def _holds_a_store(folder: Path) -> bool:
    try:
        (folder / DATA_FILE).stat()
    except (FileNotFoundError, NotADirectoryError):  # none yet, which is no trouble
        return False
    except OSError as error:
        raise ConfigError("store.path", f"the store in {folder} cannot be looked at: {error.strerror}") from None
    return True


def _surveyed(store: Store) -> tuple[dict[str, SessionId], int]:
    """Give the sessions by the names of their leases, and the number of those that cannot be read."""
    found = list(store.survey())
    ids = [one for one in found if not isinstance(one, RefoldError)]
    return {lease_name(session): session for session in ids}, len(found) - len(ids)


def _state(vitals: Vitals, unreadable: int, max_bytes: int | None) -> StoreState:
    last = vitals.last_transaction
    readers = tuple(OpenReader(row.pid, _lives(row.pid), max(0, last - row.transaction)) for row in vitals.readers)
    return StoreState(
        vitals.format,
        vitals.file_bytes,
        vitals.used_bytes,
        vitals.map_bytes,
        vitals.sessions,
        unreadable,
        readers,
        max_bytes,
    )


def _lease(held: Holding, names: dict[str, SessionId]) -> LeaseHolder:
    session, holder = names.get(held.name), held.holder
    if holder is None:
        return LeaseHolder(session)
    return LeaseHolder(session, holder.pid, holder.since, holder.client)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's
        return True
    return True
