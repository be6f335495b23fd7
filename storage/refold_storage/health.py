"""Owns what can be told of a store's state without reading any log: its size, its map, who reads it right now."""

from __future__ import annotations

from msgspec import Struct

from refold_storage.environment import Environment


class Reader(Struct, frozen=True, gc=False):
    """An open read transaction of some process. `transaction` is the last commit that it sees: pages freed since then
    cannot be used again while it lives."""

    pid: int
    transaction: int


class Vitals(Struct, frozen=True, gc=False):
    """A store's state. Sizes are in bytes; `file_bytes` is what the data file takes on disk, `used_bytes` what it holds,
    `map_bytes` what it may grow to before the map does."""

    path: str
    format: int
    file_bytes: int
    used_bytes: int
    map_bytes: int
    sessions: int
    last_transaction: int
    readers: tuple[Reader, ...] = ()


def vitals(environment: Environment, path: str, format_version: int) -> Vitals:
    """Look at a store. Raises LogUnwritableError when its environment is unusable."""
    figures = environment.figures()
    return Vitals(
        path,
        format_version,
        figures.file_bytes,
        figures.used_bytes,
        figures.map_bytes,
        figures.sessions,
        environment.last_transaction(),
        _readers(environment.open_readers()),
    )


def _readers(table: str) -> tuple[Reader, ...]:
    """Read LMDB's table: a heading, then process, thread and transaction in each line; `-` where a slot is idle."""
    readers: list[Reader] = []
    for line in table.split("\n"):
        words = line.split()
        if len(words) == 3 and words[0].isdigit() and words[2].isdigit():
            readers.append(Reader(int(words[0]), int(words[2])))
    return tuple(readers)
