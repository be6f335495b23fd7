"""Owns what plugins add: handlers at seams, tools and event types, each with the name of its plugin, in a fixed order.

A plugin is a module with `register(registry)`. What it registers stands in the order of its calls, behind what earlier
plugins registered; nothing can be added once that function has returned. Never runs a handler (`chain.py` does).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Final, Generic, TypeVar, cast

from msgspec import Struct, field

from refold_protocol.errors import ConfigError, RefoldError
from refold_protocol.ids import SessionId
from refold_protocol.session.events import EVENT_TYPES, Event
from refold_server.plugins.recording import AppendTo, PluginEventType, Recorder, check_shape
from refold_server.plugins.seam import SEAMS, Seam
from refold_server.plugins.tally import Tally
from refold_server.plugins.tools import BroughtTool
from refold_server.tools.tool import Tool

__all__ = ["NO_PLUGINS", "PluginEventType", "PluginRegistry", "PluginTool", "Plugins", "Register", "Registered", "registered"]

Handler = TypeVar("Handler")

_EVENT_TYPE: Final = re.compile(r"[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)+")
_FAMILIES: Final = frozenset(name.partition("/")[0] for name in EVENT_TYPES)


class Registered(Struct, Generic[Handler], frozen=True):
    """One handler at one seam; `limit_s` is None at seams that do not wait. `tally` is its measure, and grows."""

    plugin: str
    seam: Seam[Handler]
    handler: Handler
    limit_s: float | None
    tally: Tally = field(default_factory=Tally)


class PluginTool(Struct, frozen=True):
    """A tool and the plugin that brought it."""

    plugin: str
    tool: Tool


class Brought(Struct, frozen=True):
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

    def on(self, seam: Seam[Handler], handler: Handler, *, limit_s: float | None = None) -> None:
        """Call `handler` at `seam`, within `limit_s` seconds (None: the seam's own limit). Raises ConfigError."""
        self._require_open()
        if not callable(handler):
            raise self._fault(f"the handler for {seam.name} cannot be called: {handler!r}")
        if limit_s is not None and (seam.limit_s is None or not 0 < limit_s < 86_400):
            raise self._fault(f"{seam.name} takes no limit of {limit_s} s")
        self._handlers.append(Registered(self._plugin, seam, handler, seam.limit_s if limit_s is None else limit_s))

    def tool(self, tool: Tool) -> None:
        """Offer a tool to models, behind the tools before it (`plugins.tool` makes one). Raises ConfigError."""
        self._require_open()
        try:
            brought = BroughtTool(tool)
        except (AttributeError, TypeError, ValueError, RefoldError) as error:  # what it is given may be anything
            raise self._fault(f"a {type(tool).__name__} is no tool: {error}") from None
        self._tools.append(PluginTool(self._plugin, brought))

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
        brought = (Brought(self._plugin, self._origin),)
        return Plugins(self._handlers, self._tools, self._event_types, brought, (self._recorder,))

    def _require_open(self) -> None:
        if not self._open:
            raise self._fault("registers after `register` has returned; tools and handlers are fixed from then on")

    def _fault(self, reason: str) -> ConfigError:
        return ConfigError("plugins", f"plugin {self._plugin!r}: {reason}")


class Plugins:
    """All that plugins registered, in order; `brought` has the plugins themselves. Immutable but for tallies and `bind`."""

    def __init__(
        self,
        handlers: Iterable[Registered[Any]] = (),
        tools: Iterable[PluginTool] = (),
        event_types: Iterable[PluginEventType] = (),
        brought: Iterable[Brought] = (),
        recorders: Iterable[Recorder] = (),
    ) -> None:
        self.tools: Final = tuple(tools)
        self.event_types: Final = tuple(event_types)
        self.brought: Final = tuple(brought)
        self.handlers: Final = tuple(handlers)
        self._recorders: Final = tuple(recorders)
        self._by_seam: Final = {seam: tuple(one for one in self.handlers if one.seam is seam) for seam in SEAMS}

    def at(self, seam: Seam[Handler]) -> tuple[Registered[Handler], ...]:
        """Give the handlers of a seam, in the order of registration."""
        return cast("tuple[Registered[Handler], ...]", self._by_seam[seam])

    def then(self, later: Plugins) -> Plugins:
        """Give these with `later` behind them."""
        return Plugins(
            (*self.handlers, *later.handlers),
            (*self.tools, *later.tools),
            (*self.event_types, *later.event_types),
            (*self.brought, *later.brought),
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
