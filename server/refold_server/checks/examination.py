"""Owns what `refold doctor` looks at, as facts and as findings: each finding says what is wrong and what to do about it.

Pure: facts in, findings out. Keys are no facts: of a provider is known only whether its key is there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from refold_protocol.errors import RefoldError
from refold_protocol.rpc.listing import ProviderRow

MIN_FREE_BYTES: Final = 512 * 1024 * 1024
"""Free disk space below which the store is in danger: a store grows while it works."""

MAX_LAG: Final = 10_000
"""Commits behind the last one from which on a reader counts as forgotten: the space freed since cannot be used again."""

MAP_SHARE: Final = 0.9
"""Share of `store.max_bytes` from which on the end is near."""


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


class LeaseHolder(Struct, frozen=True, gc=False, omit_defaults=True):
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


class Finding(Struct, frozen=True, gc=False):
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
    leases: tuple[LeaseHolder, ...] = ()
    providers: tuple[ProviderRow, ...] = ()
    plugins: tuple[PluginState, ...] = ()
    findings: tuple[Finding, ...] = ()


def trouble(error: RefoldError) -> Finding:
    """Give the finding that an error is."""
    advice = _ADVICE.get(error.error_kind, "look at the sentence above; if it does not help, please report it")
    return Finding(error.error_kind, error.message, advice)


def findings(examined: Examination, key_names: dict[str, str]) -> Iterator[Finding]:
    """Give what is wrong with the facts, in the order in which they are told. `key_names` has the environment variable of
    each provider that reads its key from one."""
    if examined.store is not None:
        yield from _store_findings(examined.store)
    if examined.free_bytes is not None and examined.free_bytes < MIN_FREE_BYTES:
        yield Finding(
            "disk.low",
            f"the disk of {examined.store_path} has {examined.free_bytes // 1_000_000} MB left",
            "make room, or name a store on another disk with store.path",
        )
    for row in examined.providers:
        if row.credentials == "missing":
            variable = key_names.get(row.provider, "its key")
            yield Finding(
                "credentials.missing",
                f"the provider {row.provider} has no key: {variable} is not set",
                f"set {variable}, or take [providers.{row.provider}] out of the configuration",
            )


def _store_findings(store: StoreState) -> Iterator[Finding]:
    if store.unreadable:
        yield Finding(
            "session.corrupt",
            f"{store.unreadable} of {store.sessions} sessions have a record that cannot be read",
            "refold verify --all says which and why; the other sessions are not concerned",
        )
    if store.max_bytes is not None and store.used_bytes >= store.max_bytes * MAP_SHARE:
        yield Finding(
            "store.nearly-full",
            f"{store.used_bytes} of {store.max_bytes} bytes that the store may hold are used",
            "raise store.max_bytes in the configuration",
        )
    for reader in store.readers:
        if not reader.lives:
            yield Finding(
                "reader.dead",
                f"process {reader.pid} died while it read the store, and space freed since is not used again",
                "end all processes that use the store, or go on: its place is freed within a minute of the next read",
            )
        elif reader.lag > MAX_LAG:
            yield Finding(
                "reader.forgotten",
                f"process {reader.pid} reads the store as it was {reader.lag} commits ago, so the store cannot reuse space",
                f"end process {reader.pid} if it does nothing useful",
            )


_ADVICE: Final = {
    "config.invalid": "correct the setting that the sentence names",
    "session.format": "use the release of refold that made this store, or name another folder with --store",
    "session.corrupt": "refold verify --all says which sessions are concerned",
    "log.busy": "try again; if it stays so, end the process that holds the store",
    "log.full": "make room on the disk, or raise store.max_bytes",
    "log.unwritable": "look at the folder's permissions and at its disk",
}
