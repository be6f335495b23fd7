"""What plugins add: handlers at hooks, tools and event types, each with the name of its plugin, in a fixed order.

A plugin is a module with `register(registry)`. What it registers stands in the order of its calls, after what earlier
plugins registered; nothing can be added once that function has returned. Never runs a handler (`hook_runner.py` does).

The log holds a plugin's own events as JSON text, so that a reader without the plugin keeps them byte for byte. What is recorded
was read back as its type before, and equals what the plugin gave. Must not know sessions: they bind themselves.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Generic, TypeAlias, TypeVar, cast

import msgspec
from msgspec import Struct, field

from refold_protocol.errors import ConfigError, InvalidEventError, RefoldError
from refold_protocol.ids import SessionId
from refold_protocol.json_text import JsonText
from refold_protocol.session.events import EVENT_TYPES, Draft, Event, ForeignData
from refold_server.plugins.hook_table import HOOKS, Hook
from refold_server.plugins.hook_values import frozen
from refold_server.plugins.plugin_tools import FixedTool
from refold_server.tools.tool import Tool


class SeamTally(Struct, frozen=True, gc=False, rename="camel"):
    """What a plugin did at one seam since the daemon began: calls of its handlers there, failures among them, and their own
    time in milliseconds, without what they waited for the rest of a chain."""

    seam: str
    calls: int
    failures: int
    total_ms: float
    slowest_ms: float


class PluginHealth(Struct, frozen=True, gc=False, rename="camel"):
    """A plugin that is loaded: where it comes from, the tools and event types that it brought, its seams in the order of a
    turn. What comes with refold is the plugin `refold`."""

    plugin: str
    origin: str
    tools: tuple[str, ...]
    event_types: tuple[str, ...]
    seams: tuple[SeamTally, ...]


SLOW_S: Final = 0.05
"""What a handler that nobody waits for may take before it is named: every event of every session waits for it."""


class HandlerStats:
    """Counts of one handler. `total_s` and `slowest_s` are in seconds."""

    __slots__ = ("calls", "failures", "slowest_s", "told_s", "total_s")

    def __init__(self) -> None:
        self.calls = 0
        self.failures = 0
        self.total_s = 0.0
        self.slowest_s = 0.0
        self.told_s = SLOW_S / 2

    def add(self, seconds: float, *, failed: bool = False) -> None:
        """Count one call."""
        self.calls += 1
        self.failures += failed
        self.total_s += seconds
        if seconds > self.slowest_s:
            self.slowest_s = seconds

    def is_news(self, seconds: float) -> bool:
        """Tell whether a call was slow, and twice as slow as any that was told: one that is always slow fills no log."""
        if seconds < 2 * self.told_s:
            return False
        self.told_s = seconds
        return True


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


Handler = TypeVar("Handler")
_EVENT_TYPE: Final = re.compile(r"[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)+")
_FAMILIES: Final = frozenset(name.partition("/")[0] for name in EVENT_TYPES)


class Registered(Struct, Generic[Handler], frozen=True):
    """One handler at one hook; `limit_s` is None at hooks that do not wait. `stats` is its measure, and grows."""

    plugin: str
    hook: Hook[Handler]
    handler: Handler
    limit_s: float | None
    stats: HandlerStats = field(default_factory=HandlerStats)


class PluginTool(Struct, frozen=True):
    """A tool and the plugin that brought it."""

    plugin: str
    tool: Tool


class LoadedPlugin(Struct, frozen=True):
    """A plugin that is there, and where it comes from: a file, an installed package, or refold itself."""

    plugin: str
    origin: str


class PluginRegistry:
    """What one plugin is given to register itself with. `plugin` is its name, which the log and messages show."""

    __slots__ = ("_event_types", "_handlers", "_open", "_origin", "_plugin", "_recorder", "_tools")

    def __init__(self, plugin: str, origin: str = "refold") -> None:
        self._plugin = plugin
        self._origin = origin
        self._recorder = Recorder(plugin)
        self._open = True
        self._handlers: list[Registered[Any]] = []
        self._tools: list[PluginTool] = []
        self._event_types: list[PluginEventType] = []

    @property
    def plugin(self) -> str:
        """The plugin's name."""
        return self._plugin

    def on(self, hook: Hook[Handler], handler: Handler, *, limit_s: float | None = None) -> None:
        """Call `handler` at `hook`, within `limit_s` seconds (None: the hook's own limit). Raises ConfigError."""
        self._require_open()
        if not callable(handler):
            raise self._fault(f"the handler for {hook.name} cannot be called: {handler!r}")
        if limit_s is not None and (hook.limit_s is None or not 0 < limit_s < 86_400):
            raise self._fault(f"{hook.name} takes no limit of {limit_s} s")
        self._handlers.append(Registered(self._plugin, hook, handler, hook.limit_s if limit_s is None else limit_s))

    def tool(self, tool: Tool) -> None:
        """Offer a tool to models, after the tools before it (`plugins.tool` makes one). Raises ConfigError."""
        self._require_open()
        try:
            fixed = FixedTool(tool)
        except (AttributeError, TypeError, ValueError, RefoldError) as error:  # what it is given may be anything
            raise self._fault(f"a {type(tool).__name__} is no tool: {error}") from None
        self._tools.append(PluginTool(self._plugin, fixed))

    def event_type(self, name: str, data: type[Struct], *, ignorable: bool) -> None:
        """Add a log-only event type `PLUGIN/…`, whose data is a frozen struct. `ignorable`: logs with such events can be read
        where the plugin is not. Raises ConfigError."""
        self._require_open()
        if not name.startswith(f"{self._plugin}/") or not _EVENT_TYPE.fullmatch(name):
            raise self._fault(f"the event type {name!r} must be {self._plugin}/ and a word")
        if self._plugin in _FAMILIES:
            raise self._fault(f"the event types {self._plugin}/… are refold's own; give the plugin another name")
        try:
            check_shape(data)
        except (TypeError, ValueError) as error:
            raise self._fault(f"the data of {name} {error}") from None
        row = PluginEventType(self._plugin, name, data, ignorable)
        try:
            self._recorder.add(row)
        except ValueError as error:
            raise self._fault(str(error)) from None
        self._event_types.append(row)

    def record(self, session: SessionId, data: Struct) -> Event:
        """Append an event of a type that this plugin registered, told by the class of `data`, to a session that is open for
        writing here; give the event. It is accepted, not durable yet: the next flush of the session covers it.

        Raises SessionNotFoundError when the session is not open here; InvalidEventError for data of another class or that is
        no lossless JSON, on another thread, and inside a handler of `log/observe` or `session/flush`; LogError.
        """
        return self._recorder.record(session, data)

    def closed(self) -> Plugins:
        """Give what was registered, and take nothing more."""
        self._open = False
        loaded = (LoadedPlugin(self._plugin, self._origin),)
        return Plugins(self._handlers, self._tools, self._event_types, loaded, (self._recorder,))

    def _require_open(self) -> None:
        if not self._open:
            raise self._fault("registers after `register` has returned; tools and handlers are fixed from then on")

    def _fault(self, reason: str) -> ConfigError:
        return ConfigError("plugins", f"plugin {self._plugin!r}: {reason}")


class Plugins:
    """All that plugins registered, in order; `loaded` has the plugins themselves. Immutable but for stats and `bind`."""

    def __init__(
        self,
        handlers: Iterable[Registered[Any]] = (),
        tools: Iterable[PluginTool] = (),
        event_types: Iterable[PluginEventType] = (),
        loaded: Iterable[LoadedPlugin] = (),
        recorders: Iterable[Recorder] = (),
    ) -> None:
        self.tools: Final = tuple(tools)
        self.event_types: Final = tuple(event_types)
        self.loaded: Final = tuple(loaded)
        self.handlers: Final = tuple(handlers)
        self._recorders: Final = tuple(recorders)
        self._by_hook: Final = {hook: tuple(one for one in self.handlers if one.hook is hook) for hook in HOOKS}

    def at(self, hook: Hook[Handler]) -> tuple[Registered[Handler], ...]:
        """Give the handlers of a hook, in the order of registration."""
        return cast("tuple[Registered[Handler], ...]", self._by_hook[hook])

    def then(self, later: Plugins) -> Plugins:
        """Give these with `later` after them."""
        return Plugins(
            (*self.handlers, *later.handlers),
            (*self.tools, *later.tools),
            (*self.event_types, *later.event_types),
            (*self.loaded, *later.loaded),
            (*self._recorders, *later._recorders),
        )

    def bind(self, append: AppendTo) -> None:
        """Let plugins record by `append`, on this thread."""
        for recorder in self._recorders:
            recorder.bind(append)


NO_PLUGINS: Final = Plugins()
Register = Callable[[PluginRegistry], None]
"""A plugin's one function."""


def registered(plugin: str, register: Register, origin: str = "refold") -> Plugins:
    """Let a plugin register itself and give what it added. Raises what `register` raises."""
    registry = PluginRegistry(plugin, origin)
    register(registry)
    return registry.closed()


def plugin_stats(plugins: Plugins) -> tuple[PluginHealth, ...]:
    """Give a row for each plugin, in the order in which they were loaded."""
    return tuple(
        PluginHealth(
            one.plugin,
            one.origin,
            tuple(row.tool.schema.name for row in plugins.tools if row.plugin == one.plugin),
            tuple(row.name for row in plugins.event_types if row.plugin == one.plugin),
            tuple(_hook_stats(plugins, one.plugin)),
        )
        for one in plugins.loaded
    )


def _hook_stats(plugins: Plugins, plugin: str) -> Iterator[SeamTally]:
    for hook in HOOKS:
        stats = [one.stats for one in plugins.at(hook) if one.plugin == plugin]
        if stats:
            yield SeamTally(
                hook.name,
                sum(one.calls for one in stats),
                sum(one.failures for one in stats),
                round(sum(one.total_s for one in stats) * 1000, 3),
                round(max(one.slowest_s for one in stats) * 1000, 3),
            )
