"""Facts and findings of `refold doctor`: each finding says what is wrong and what to do about it.

Keys are no facts: of a provider is known only whether its key is there. Plugins are loaded one by one, so that one that fails
hides none; none of their handlers run.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import redirect_stdout
from importlib.metadata import version
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from refold_protocol.errors import ConfigError, RefoldError
from refold_protocol.ids import SessionId
from refold_protocol.rpc.initialize import VERSION
from refold_protocol.session.token_estimate import TokenMeterError
from refold_server.cli.command_context import open_context, read_config
from refold_server.cli.provider_tries import ProviderTry, SmallerWindow, try_providers
from refold_server.config import Config
from refold_server.config_file import config_path
from refold_server.plugins.plugin_loading import ImportThreads, load_plugin_in_thread, plugin_sources
from refold_server.plugins.plugin_registry import NO_PLUGINS, plugin_stats
from refold_server.providers.credentials import add_secrets, secrets_in
from refold_server.providers.login_store import LoginStore, known_logins
from refold_server.requests.session_meters import Meters
from refold_server.services import offered
from refold_server.sessions.session_reports import ProviderRow, provider_rows
from refold_storage.interface import Store, Vitals
from refold_storage.lease import Holding, holdings, lease_name
from refold_storage.store_format import DATA_FILE

MIN_FREE_BYTES: Final = 512 * 1024 * 1024
"""Free disk space below which the store is in danger: a store grows while it works."""

MAX_LAG: Final = 10_000
"""A reader that sees the store as it was more commits ago counts as forgotten: space freed since cannot be used again."""

MAP_SHARE: Final = 0.9
"""Share of `store.max_bytes` from which on a store counts as nearly full."""


class Versions(Struct, frozen=True, gc=False):
    """The releases that work together here."""

    refold: str
    python: str
    lmdb: str
    msgspec: str


class ConfigInForce(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """The configuration file; `named_by` is `--config` or `REFOLD_CONFIG`, absent for the platform's."""

    file: str
    exists: bool
    named_by: str | None = None


class SessionWriter(Struct, frozen=True, gc=False, omit_defaults=True):
    """Who writes a session; `since` is epoch ms. `session` is absent while nothing of it is on disk, the others where the
    lease names nobody."""

    session: str | None = None
    pid: int | None = None
    since: int | None = None
    client: str | None = None


class OpenReader(Struct, frozen=True, gc=False):
    """An open read transaction: `lag` is how many commits came after what it sees."""

    pid: int
    lives: bool
    lag: int


class StoreState(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """The store that could be opened; sizes are in bytes. `unreadable` counts sessions whose record is damaged."""

    format: int
    file_bytes: int
    used_bytes: int
    map_bytes: int
    sessions: int
    unreadable: int
    readers: tuple[OpenReader, ...]
    max_bytes: int | None = None


class PluginState(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """A plugin of the configuration; without a name where it could not be loaded."""

    origin: str
    plugin: str | None = None
    tools: tuple[str, ...] = ()
    event_types: tuple[str, ...] = ()
    seams: tuple[str, ...] = ()


class DoctorFinding(Struct, frozen=True, gc=False):
    """Something that is wrong: a stable word, a sentence, and what to do."""

    code: str
    message: str
    advice: str


class Examination(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """All that was looked at. `store_path` is absent where the configuration cannot be read, `store` where there is none
    yet or none that can be opened; `free_bytes` is the free space of the disk that holds it."""

    versions: Versions
    config: ConfigInForce
    store_path: str | None = None
    store: StoreState | None = None
    free_bytes: int | None = None
    leases: tuple[SessionWriter, ...] = ()
    providers: tuple[ProviderRow, ...] = ()
    tries: tuple[ProviderTry, ...] = ()
    plugins: tuple[PluginState, ...] = ()
    findings: tuple[DoctorFinding, ...] = ()


async def examine(options: argparse.Namespace) -> Examination:
    """Look at everything that `--config`, `--store` and the environment name. What cannot be looked at is a finding."""
    file, named_by = config_path(None if options.config is None else Path(options.config), os.environ)
    versions = Versions(VERSION, platform.python_version(), version("lmdb"), version("msgspec"))
    examined = Examination(versions, ConfigInForce(str(file), file.is_file(), named_by))
    try:
        config = read_config(options)
    except ConfigError as error:  # nothing else can be known then: not even where the store is
        return replace(examined, findings=(trouble(error),))
    examined = replace(examined, findings=tuple(_window_findings(config)))
    keys = {row.name: row.key_env for row in config.providers if row.key_env is not None}
    rows = provider_rows(config, os.environ, known_logins())
    examined = replace(examined, store_path=str(config.store.path), providers=rows)
    try:
        examined = await _with_store(examined, config)
    except RefoldError as error:  # what stands outside the store can be told all the same
        examined = replace(examined, findings=(*examined.findings, trouble(error)))
    if not options.offline:
        tries, smaller = await try_providers(config)
        examined = replace(examined, tries=tries, findings=(*examined.findings, *_try_findings(tries, smaller)))
    plugins, broken = await examine_plugins(config)
    found = (*examined.findings, *broken, *findings(examined, keys), *file_findings(file, config))
    return replace(examined, plugins=plugins, findings=found)


def trouble(error: RefoldError) -> DoctorFinding:
    """Give the finding that an error is."""
    advice = _ADVICE.get(error.error_kind, "look at the sentence above; if it does not help, please report it")
    return DoctorFinding(error.error_kind, error.message, advice)


def findings(examined: Examination, key_names: dict[str, str]) -> Iterator[DoctorFinding]:
    """Give what is wrong with the facts, in the order in which they are told. `key_names` has the environment variable of
    each provider that reads its key from one."""
    if examined.store is not None:
        yield from _store_findings(examined.store)
    if examined.free_bytes is not None and examined.free_bytes < MIN_FREE_BYTES:
        yield DoctorFinding(
            "disk.low",
            f"the disk of {examined.store_path} has {examined.free_bytes // 1_000_000} MB left",
            "make room, or name a store on another disk with store.path",
        )
    for row in examined.providers:
        if row.credentials == "missing":
            variable = key_names.get(row.provider, "its key")
            yield DoctorFinding(
                "credentials.missing",
                f"the provider {row.provider} has no key: {variable} is not set",
                f"set {variable}, or take [providers.{row.provider}] out of the configuration",
            )


def file_findings(file: Path, config: Config) -> Iterator[DoctorFinding]:
    """Give what is wrong with who may read and write the configuration file, and the one of logins."""
    mode = _mode(file)
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        yield DoctorFinding(
            "config.writable",
            f"{file} can be written by others, who can have their programs run and your keys sent elsewhere",
            f"chmod go-w {file}",
        )
    if mode & (stat.S_IRGRP | stat.S_IROTH) and any(True for row in config.providers for _ in secrets_in(row)):
        yield DoctorFinding(
            "config.readable",
            f"{file} holds a key, and others can read it",
            f"chmod 600 {file}, or name a variable with header_env or key_env instead",
        )
    try:
        LoginStore().providers()
    except ConfigError as error:
        yield DoctorFinding("logins.unusable", error.message, "correct it, or use `refold login` anew")


def _mode(file: Path) -> int:
    try:
        return file.stat().st_mode
    except OSError:  # there is none, or it was told already why it cannot be read
        return 0


async def examine_plugins(config: Config) -> tuple[tuple[PluginState, ...], tuple[DoctorFinding, ...]]:
    """Give the plugins in the order in which they are loaded, and what is wrong with them."""
    add_secrets(config.providers, os.environ)
    loaded, runner = NO_PLUGINS, ImportThreads()
    states: list[PluginState] = []
    found: list[DoctorFinding] = []
    with redirect_stdout(sys.stderr):
        for source in plugin_sources(config.plugins):
            try:
                one = await load_plugin_in_thread(source, loaded, config.plugins.load_timeout_s, runner)
            except ConfigError as error:  # the others can still be looked at
                states.append(PluginState(source.origin))
                found.append(DoctorFinding(error.error_kind, error.message, "correct it, or take it out of the configuration"))
                continue
            loaded = loaded.then(one)
            (row,) = plugin_stats(one)
            seams = tuple(seam.seam for seam in row.seams)
            states.append(PluginState(row.origin, row.plugin, row.tools, row.event_types, seams))
    try:
        offered(config, loaded)
    except ConfigError as error:  # where a plugin is missing, its tools are as well
        found.append(DoctorFinding(error.error_kind, error.message, "correct the setting that the sentence names"))
    return tuple(states), tuple(found)


def _window_findings(config: Config) -> Iterator[DoctorFinding]:
    try:
        Meters(config).profile(config.model)
    except TokenMeterError as error:
        yield DoctorFinding(
            "model.unmetered",
            f"{error.message}; without it no session with this model is metered or compacted",
            f'set context_window under [models."{config.model}"], in tokens',
        )


def _try_findings(tries: Iterable[ProviderTry], smaller: Iterable[SmallerWindow]) -> Iterator[DoctorFinding]:
    for row in tries:
        if row.error is not None:
            yield DoctorFinding(
                "provider.unanswered", f"{row.provider}: {row.error}", "try again, or --offline asks no provider"
            )
    for one in smaller:
        yield DoctorFinding(
            "model.window",
            f"the server of {one.model} has a window of {one.told:,} tokens, and the configuration says {one.configured:,}: "
            "what is longer is refused, or its front is cut off",
            f'set context_window = {one.told} under [models."{one.model}"], or start the server with a larger window',
        )


def _store_findings(store: StoreState) -> Iterator[DoctorFinding]:
    if store.unreadable:
        yield DoctorFinding(
            "session.corrupt",
            f"{store.unreadable} of {store.sessions} sessions have a record that cannot be read",
            "refold verify --all says which and why; the other sessions are not concerned",
        )
    if store.max_bytes is not None and store.used_bytes >= store.max_bytes * MAP_SHARE:
        yield DoctorFinding(
            "store.nearly-full",
            f"{store.used_bytes} of {store.max_bytes} bytes that the store may hold are used",
            "raise store.max_bytes in the configuration",
        )
    for reader in store.readers:
        if not reader.lives:
            yield DoctorFinding(
                "reader.dead",
                f"process {reader.pid} died while it read the store, and space freed since is not used again",
                "end all processes that use the store, or go on: its place is freed within a minute of the next read",
            )
        elif reader.lag > MAX_LAG:
            yield DoctorFinding(
                "reader.forgotten",
                f"process {reader.pid} reads the store as it was {reader.lag} commits ago, so the store cannot reuse space",
                f"end process {reader.pid} if it does nothing useful",
            )


async def _with_store(examined: Examination, config: Config) -> Examination:
    folder = config.store.path.expanduser()
    examined = replace(examined, free_bytes=_free_bytes(folder))
    if not _holds_a_store(folder):
        return examined
    held = holdings(folder.resolve())
    async with open_context(config, plugins=False) as context:
        names, unreadable = _surveyed(context.store)
        state = _state(context.store.vitals(), unreadable, config.store.max_bytes)
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
    sizes = vitals.file_bytes, vitals.used_bytes, vitals.map_bytes
    return StoreState(vitals.format, *sizes, vitals.sessions, unreadable, readers, max_bytes)


def _lease(held: Holding, names: dict[str, SessionId]) -> SessionWriter:
    session, holder = names.get(held.name), held.holder
    if holder is None:
        return SessionWriter(session)
    return SessionWriter(session, holder.pid, holder.since, holder.client)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's
        return True
    return True


_ADVICE: Final = {
    "config.invalid": "correct the setting that the sentence names",
    "session.format": "use the release of refold that made this store, or name another folder with --store",
    "session.corrupt": "refold verify --all says which sessions are concerned",
    "log.busy": "try again; if it stays so, end the process that holds the store",
    "log.full": "make room on the disk, or raise store.max_bytes",
    "log.unwritable": "look at the folder's permissions and at its disk",
}
