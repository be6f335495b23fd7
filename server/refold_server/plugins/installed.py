"""Owns finding the plugins that installed packages bring: entry points of the group `refold.plugins`.

Looks into the folders of `sys.path` itself, because importing `importlib.metadata` takes longer than opening a session does;
only where a package names the group is that imported. Never looks into the current folder: what lies in a workspace is
nobody's plugin. Loads nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from msgspec import Struct

GROUP: Final = "refold.plugins"
_KINDS: Final = (".dist-info", ".egg-info")


class Installed(Struct, frozen=True):
    """A plugin of an installed package; `load` gives its module or object, and raises whatever importing it raises."""

    name: str
    package: str
    load: Callable[[], object]


def installed_plugins() -> tuple[Installed, ...]:
    """Give the plugins of all installed packages, by name."""
    folders = list(dict.fromkeys(_folders()))
    if not any(map(_names_the_group, folders)):
        return ()
    from importlib.metadata import distributions  # on use: see above

    found: dict[str, list[Installed]] = {}
    for package in distributions(path=folders):
        if package.name.lower() not in found:  # else a package of an earlier folder, which is the one that is imported
            points = package.entry_points.select(group=GROUP)
            found[package.name.lower()] = [Installed(point.name, package.name, point.load) for point in points]
    return tuple(sorted((one for rows in found.values() for one in rows), key=lambda one: (one.name, one.package)))


def _folders() -> Iterator[str]:
    try:
        here = Path.cwd()
    except OSError:  # it was deleted: then nothing lies there
        here = None
    for folder in sys.path:
        if folder and Path(folder).resolve() != here:
            yield folder


def _names_the_group(folder: str) -> bool:
    try:
        with os.scandir(folder) as entries:
            names = [entry.path for entry in entries if entry.name.endswith(_KINDS)]
    except OSError:  # not there, an archive, or not ours to read: Python itself passes it by
        return False
    return any(GROUP.encode() in _read(Path(name, "entry_points.txt")) for name in names)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # a package without entry points
        return b""
