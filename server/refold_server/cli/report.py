"""Owns how what `refold doctor` found is put for a person: facts first, then each finding with what to do. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from refold_server.checks.examination import Examination, LeaseHolder, PluginState, StoreState
from refold_server.cli.people import printable
from refold_server.cli.screen import Look

_UNITS = ("bytes", "kB", "MB", "GB", "TB")


def report_lines(examined: Examination, look: Look) -> Iterator[str]:
    """Give the report, line by line. Times are local."""
    versions = examined.versions
    yield _fact(
        look,
        "versions",
        f"refold {versions.refold}, Python {versions.python}, lmdb {versions.lmdb}, msgspec {versions.msgspec}",
    )
    yield _fact(look, "config", _config(examined))
    if examined.store_path is not None:
        yield _fact(look, "store", f"{examined.store_path}{'' if examined.store else ' (none yet, or it cannot be opened)'}")
    if examined.store is not None:
        yield from _store_lines(examined.store, look)
    if examined.free_bytes is not None:
        yield _fact(look, "disk", f"{size_text(examined.free_bytes)} free")
    for lease in examined.leases:
        yield _fact(look, "written", _lease(lease))
    for row in examined.providers:
        where = "" if row.base_url is None else f" at {row.base_url}"
        yield _fact(look, "provider", f"{row.provider}: {row.dialect}{where}, {_CREDENTIALS[row.credentials]}")
    for plugin in examined.plugins:
        yield _fact(look, "plugin", _plugin(plugin))
    yield ""
    for finding in examined.findings:
        yield f"{look.red('✗')} {printable(finding.message)}"
        yield f"  → {printable(finding.advice)}"
    if not examined.findings:
        yield "all is well"


def size_text(count: int) -> str:
    """Give a number of bytes with three digits or so, in powers of 1000."""
    value, power = float(count), 0
    while value >= 999.5 and power < len(_UNITS) - 1:
        value, power = value / 1000, power + 1
    return f"{count} bytes" if power == 0 else f"{value:.3g} {_UNITS[power]}"


def _store_lines(store: StoreState, look: Look) -> Iterator[str]:
    sizes = f"{size_text(store.file_bytes)} on disk, {size_text(store.used_bytes)} used, map of {size_text(store.map_bytes)}"
    yield _fact(look, "", f"format {store.format}, {store.sessions} session{'' if store.sessions == 1 else 's'}, {sizes}")
    for reader in store.readers:
        state = "reads" if reader.lives else "is dead and reads"
        yield _fact(look, "reader", f"process {reader.pid} {state} what was there {reader.lag} commits ago")


def _config(examined: Examination) -> str:
    config = examined.config
    named = "" if config.named_by is None else f" (named by {config.named_by})"
    return f"{config.file}{named}{'' if config.exists else ' (not there: the defaults hold)'}"


def _plugin(plugin: PluginState) -> str:
    if plugin.plugin is None:
        return f"{plugin.origin} (cannot be loaded)"
    rows = (("tools", plugin.tools), ("event types", plugin.event_types), ("seams", plugin.seams))
    brings = "; ".join(f"{word} {', '.join(names)}" for word, names in rows if names)
    return f"{plugin.plugin}: {brings or 'brings nothing'} ({plugin.origin})"


def _lease(lease: LeaseHolder) -> str:
    session = "a session without anything on disk" if lease.session is None else f"session {lease.session}"
    if lease.pid is None or lease.since is None:
        return f"{session}, by a process that did not say its name"
    since = datetime.fromtimestamp(lease.since / 1000).strftime("%Y-%m-%d %H:%M:%S")
    return f"{session}, by process {lease.pid} ({lease.client}) since {since}"


def _fact(look: Look, name: str, text: str) -> str:
    return f"{look.dim(f'{name:<9}')} {printable(text)}"


_CREDENTIALS = {
    "none": "needs no key",
    "present": "its key is there",
    "missing": "its key is missing",
    "command": "a command prints its key",
}
