"""Owns which foreign event types this process can read: those that its plugins registered, beside the vocabulary.

The one piece of state in the core that is not an argument. It says what the running code knows, as an import does, and it
shapes nothing: a foreign event is log-only, every fold passes it by, so a request is the same whether its type is known or
not. What is at stake is only whether a reader may go on (`codec.refuse_foreign`), and every reader of a log asks that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Final

_READABLE: Final[Counter[str]] = Counter()


@contextmanager
def readable(types: Iterable[str]) -> Generator[None]:
    """Let logs with events of these foreign types be read inside. May be nested; what was readable before stays so."""
    names = tuple(types)
    _READABLE.update(names)
    try:
        yield
    finally:
        _READABLE.subtract(names)


def is_readable(name: str) -> bool:
    """Tell whether a plugin of this process brought the foreign type `name`."""
    return _READABLE[name] > 0


def plugin_of(name: str) -> str | None:
    """Give the plugin that a foreign type belongs to: its name stands before the first `/`."""
    plugin, slash, rest = name.partition("/")
    return plugin if plugin and slash and rest else None
