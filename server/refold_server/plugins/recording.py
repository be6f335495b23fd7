"""Owns the way of a plugin's own events into a log: checked, encoded, handed to whoever writes the session.

The log holds foreign data as JSON text, so that a reader without the plugin keeps it byte for byte. What is recorded was
read back as its type before, and equals what the plugin gave. Must not know sessions: they bind themselves.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeAlias

import msgspec
from msgspec import Struct

from refold_protocol.errors import InvalidEventError
from refold_protocol.ids import SessionId
from refold_protocol.json_text import JsonText
from refold_protocol.session.events import Draft, Event, ForeignData
from refold_server.plugins.frozen import frozen


class PluginEventType(Struct, frozen=True):
    """A log-only event type of a plugin: the struct of its data, and whether readers without the plugin may skip it."""

    plugin: str
    name: str
    data: type[Struct]
    ignorable: bool


AppendTo: TypeAlias = Callable[[SessionId, Draft], Event]
"""Appends to a session that is open for writing here. Raises SessionNotFoundError, InvalidEventError, LogError."""


class Recorder:
    """Records the events of one plugin. Leads nowhere until `bind`."""

    def __init__(self, plugin: str) -> None:
        self._plugin = plugin
        self._types: dict[type[Struct], PluginEventType] = {}
        self._append: AppendTo | None = None
        self._thread = 0

    def add(self, row: PluginEventType) -> None:
        """Take a type. Raises ValueError for a name or a struct that another type has."""
        if any(row.name == other.name or row.data is other.data for other in self._types.values()):
            raise ValueError(f"the event type {row.name!r} has the name or the data of another one")
        self._types[row.data] = row

    def bind(self, append: AppendTo) -> None:
        """Record by `append` from now on, on the thread that calls this."""
        self._append, self._thread = append, threading.get_ident()

    def record(self, session: SessionId, data: Struct) -> Event:
        """Append an event and give it. Raises what `append` raises, and InvalidEventError for data of no type of this
        plugin, for data that its own JSON does not give back, and for a call from another thread or too early."""
        row = self._types.get(type(data))
        if row is None:
            raise InvalidEventError(f"the plugin {self._plugin!r} registered no event type with data {type(data).__name__}")
        if self._append is None:
            raise InvalidEventError(f"{row.name}: no session is open yet")
        if threading.get_ident() != self._thread:
            raise InvalidEventError(f"{row.name}: recorded from another thread than the one that writes logs")
        return self._append(session, Draft(_encoded(row, data), type=row.name, ignorable=row.ignorable))


def check_shape(data: object) -> None:
    """Raise ValueError or TypeError unless `data` is a class of data: a frozen struct, compared by its fields, that can be
    read from JSON."""
    config = data.__struct_config__ if isinstance(data, type) and issubclass(data, Struct) else None
    if config is None or not config.frozen or not config.eq:
        raise ValueError("must be a frozen struct whose equality is that of its fields")
    try:
        msgspec.json.schema(data)
    except TypeError as error:  # a field of a type that JSON has no word for, or a union that cannot be told apart
        reason = str(error).rpartition("\n")[2]
        raise TypeError(f"cannot be read from JSON: {reason}") from None


def _encoded(row: PluginEventType, data: Struct) -> ForeignData:
    try:
        copy = frozen(data, row.data)
    except (ValueError, TypeError) as error:
        raise InvalidEventError(f"{row.name}: {error}") from None
    if copy != data:  # NaN would be null, a list where a tuple stands would be another thing when it is read
        raise InvalidEventError(f"{row.name}: the data is not what a reader of its JSON would get")
    return ForeignData(JsonText(msgspec.json.encode(copy).decode()))
