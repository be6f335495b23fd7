"""The command `refold doctor`.

Changes nothing: where there is no store, none is made. Never shows a key, nor runs the command that prints one.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from refold_server.cli.command_line import add_json, add_store
from refold_server.cli.exit_codes import COMPLETED, INTERNAL, STORE_CODES
from refold_server.cli.formatting import printable
from refold_server.cli.terminal import Style, standard_output

if TYPE_CHECKING:
    from refold_server.cli.doctor_findings import Examination, PluginState, SessionWriter, StoreState

SUMMARY = "look for what is wrong with store, configuration and providers"
DESCRIPTION = """Look at the store (format, sizes, who writes, who reads), the configuration in force, the providers, the disk
and the versions, and say what is wrong and what to do about it. Each provider is asked for its models, which costs nothing; no
prompt is sent. Keys are looked for and never shown. Changes nothing."""
EXIT_CODES = STORE_CODES | {COMPLETED: "nothing is wrong", INTERNAL: "something is wrong; or an internal error"}

_UNITS = ("bytes", "kB", "MB", "GB", "TB")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("--offline", action="store_true", help="ask no provider whether it answers")
    add_json(parser, "print everything as one JSON object")
    add_store(parser)


async def run(options: argparse.Namespace) -> int:
    """Look at everything and tell it; exit code 1 when something is wrong."""
    from refold_server.cli.doctor_findings import examine

    examined = await examine(options)
    out = standard_output()
    if options.json:
        out.put_json(examined)
    else:
        for line in report_lines(examined, out.style):
            out.line(line)
    out.flush()
    return INTERNAL if examined.findings else COMPLETED


def report_lines(examined: Examination, style: Style) -> Iterator[str]:
    """Give the report, line by line. Times are local."""
    versions = examined.versions
    yield _fact(
        style,
        "versions",
        f"refold {versions.refold}, Python {versions.python}, lmdb {versions.lmdb}, msgspec {versions.msgspec}",
    )
    yield _fact(style, "config", _config(examined))
    if examined.store_path is not None:
        yield _fact(style, "store", f"{examined.store_path}{'' if examined.store else ' (none yet, or it cannot be opened)'}")
    if examined.store is not None:
        yield from _store_lines(examined.store, style)
    if examined.free_bytes is not None:
        yield _fact(style, "disk", f"{size_text(examined.free_bytes)} free")
    for lease in examined.leases:
        yield _fact(style, "written", _lease(lease))
    for row in examined.providers:
        where = "" if row.base_url is None else f" at {row.base_url}"
        tried = next((one for one in examined.tries if one.provider == row.provider), None)
        answered = "" if tried is None or tried.error is not None else f", answered in {tried.milliseconds:,} ms"
        yield _fact(style, "provider", f"{row.provider}: {row.dialect}{where}, {_CREDENTIALS[row.credentials]}{answered}")
    for plugin in examined.plugins:
        yield _fact(style, "plugin", _plugin(plugin))
    yield ""
    for finding in examined.findings:
        yield f"{style.red('✗')} {printable(finding.message)}"
        yield f"  → {printable(finding.advice)}"
    if not examined.findings:
        yield "all is well"


def size_text(count: int) -> str:
    """Give a number of bytes with three digits or so, in powers of 1000."""
    value, power = float(count), 0
    while value >= 999.5 and power < len(_UNITS) - 1:
        value, power = value / 1000, power + 1
    return f"{count} bytes" if power == 0 else f"{value:.3g} {_UNITS[power]}"


def _store_lines(store: StoreState, style: Style) -> Iterator[str]:
    sizes = f"{size_text(store.file_bytes)} on disk, {size_text(store.used_bytes)} used, map of {size_text(store.map_bytes)}"
    yield _fact(style, "", f"format {store.format}, {store.sessions} session{'' if store.sessions == 1 else 's'}, {sizes}")
    for reader in store.readers:
        state = "reads" if reader.lives else "is dead and reads"
        yield _fact(style, "reader", f"process {reader.pid} {state} what was there {reader.lag} commits ago")


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


def _lease(lease: SessionWriter) -> str:
    session = "a session without anything on disk" if lease.session is None else f"session {lease.session}"
    if lease.pid is None or lease.since is None:
        return f"{session}, by a process that did not say its name"
    since = datetime.fromtimestamp(lease.since / 1000).strftime("%Y-%m-%d %H:%M:%S")
    return f"{session}, by process {lease.pid} ({lease.client}) since {since}"


def _fact(style: Style, name: str, text: str) -> str:
    return f"{style.dim(f'{name:<9}')} {printable(text)}"


_CREDENTIALS = {
    "none": "needs no key",
    "present": "its key is there",
    "missing": "its key is missing",
    "command": "a command prints its key",
}
