"""Owns what plugins add: handlers at seams, tools and event types, each with the name of its plugin, in a fixed order.

A plugin is a module with `register(registry)`. What it registers stands in the order of its calls, behind what earlier
plugins registered; nothing can be added once that function has returned. Never runs a handler (`chain.py` does).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, Generic, TypeVar, cast

from msgspec import Struct

from refold_protocol.errors import ConfigError
from refold_server.plugins.seam import SEAMS, Seam
from refold_server.tools.tool import Tool

Handler = TypeVar("Handler")


class Registered(Struct, Generic[Handler], frozen=True):
    """One handler at one seam; `limit_s` is None at seams that do not wait."""

    plugin: str
    seam: Seam[Handler]
    handler: Handler
    limit_s: float | None


class PluginTool(Struct, frozen=True):
    """A tool and the plugin that brought it."""

    plugin: str
    tool: Tool


class PluginEventType(Struct, frozen=True):
    """A log-only event type of a plugin: the struct of its data, and whether readers without the plugin may skip it."""

    plugin: str
    name: str
    data: type[Struct]
    ignorable: bool


class PluginRegistry:
    """What one plugin is given to register itself with. `plugin` is its name, which the log and messages show."""

    def __init__(self, plugin: str) -> None:
        self._plugin = plugin
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
        """Offer a tool to models, behind the tools before it."""
        self._require_open()
        self._tools.append(PluginTool(self._plugin, tool))

    def event_type(self, name: str, data: type[Struct], *, ignorable: bool) -> None:
        """Add a log-only event type `PLUGIN/…`, whose data is a frozen struct. Raises ConfigError."""
        self._require_open()
        if not name.startswith(f"{self._plugin}/"):
            raise self._fault(f"the event type {name!r} must begin with {self._plugin}/")
        if not data.__struct_config__.frozen:
            raise self._fault(f"the data of {name} must be a frozen struct")
        self._event_types.append(PluginEventType(self._plugin, name, data, ignorable))

    def closed(self) -> Plugins:
        """Give what was registered, and take nothing more."""
        self._open = False
        return Plugins(tuple(self._handlers), tuple(self._tools), tuple(self._event_types))

    def _require_open(self) -> None:
        if not self._open:
            raise self._fault("registers after `register` has returned; tools and handlers are fixed from then on")

    def _fault(self, reason: str) -> ConfigError:
        return ConfigError("plugins", f"plugin {self._plugin!r}: {reason}")


class Plugins:
    """All that plugins registered, in order. Immutable."""

    def __init__(
        self,
        handlers: Iterable[Registered[Any]] = (),
        tools: Iterable[PluginTool] = (),
        event_types: Iterable[PluginEventType] = (),
    ) -> None:
        self.tools: Final = tuple(tools)
        self.event_types: Final = tuple(event_types)
        self._all: Final = tuple(handlers)
        self._by_seam: Final = {seam: tuple(one for one in self._all if one.seam is seam) for seam in SEAMS}

    def at(self, seam: Seam[Handler]) -> tuple[Registered[Handler], ...]:
        """Give the handlers of a seam, in the order of registration."""
        return cast("tuple[Registered[Handler], ...]", self._by_seam[seam])

    def then(self, later: Plugins) -> Plugins:
        """Give these with `later` behind them."""
        return Plugins((*self._all, *later._all), (*self.tools, *later.tools), (*self.event_types, *later.event_types))


NO_PLUGINS: Final = Plugins()

Register = Callable[[PluginRegistry], None]
"""A plugin's one function."""


def registered(plugin: str, register: Register) -> Plugins:
    """Let a plugin register itself and give what it added."""
    registry = PluginRegistry(plugin)
    register(registry)
    return registry.closed()
