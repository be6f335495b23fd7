"""Owns how plugins get in: those of installed packages by name, then the files of the configuration, in its order.

A plugin runs with all that its user may do, so nothing but the user's own file and what is installed can name one. One
that cannot be loaded stops whoever wanted to use plugins, with a sentence: a guard that silently is not there is worse than
none. Its traceback goes to the log at level debug, never to a client. Must not know sessions; runs no handler.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import inspect
import logging
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from msgspec import Struct

from refold_protocol.errors import ConfigError, RefoldError
from refold_protocol.json_text import repair_surrogates
from refold_server.config_types import PluginsConfig, Written
from refold_server.plugins.aside import Aside
from refold_server.plugins.chain import MAX_MESSAGE
from refold_server.plugins.installed import Installed, installed_plugins
from refold_server.plugins.registry import NO_PLUGINS, Plugins, registered
from refold_server.tools.session_tools import BUILT_IN
from refold_server.tools.tool_failure import Interrupted, first_line

RESERVED: Final = frozenset({"refold", "builtin"})
"""Names that no plugin can have: they are those of what comes with refold."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_log: Final = logging.getLogger(__name__)


class Source(Struct, frozen=True):
    """A place where a plugin is. `key` is the setting that named it, which stands at `written`."""

    origin: str
    key: str
    written: Written
    find: Callable[[], tuple[str, object]]
    """Gives its name, and the module or object that has `register`. Raises whatever importing it raises."""


def plugin_sources(config: PluginsConfig) -> tuple[Source, ...]:
    """Give the places of all plugins, in the order in which they are loaded. Imports none of them."""
    installed = installed_plugins() if config.entry_points else ()
    return (
        *(_of_package(one, config.entry_points_written) for one in installed),
        *(_of_file(number, path, config.paths_written) for number, path in enumerate(config.paths)),
    )


def load_plugins(sources: Iterable[Source], before: Plugins = NO_PLUGINS) -> Plugins:
    """Load plugins behind those `before`; give all. Raises ConfigError for the first that cannot be loaded, and for two of
    one name, or with tools of one name."""
    plugins = before
    for source in sources:
        plugins = plugins.then(load_plugin(source, plugins))
    return plugins


async def load_plugins_aside(sources: Iterable[Source], limit_s: float, aside: Aside) -> Plugins:
    """Load plugins in threads, within `limit_s` seconds each, and give all. Raises ConfigError for the first that cannot be
    loaded. One that takes too long goes on in its thread, and is not tried again before that has ended."""
    plugins = NO_PLUGINS
    for source in sources:
        plugins = plugins.then(await load_plugin_aside(source, plugins, limit_s, aside))
    return plugins


async def load_plugin_aside(source: Source, before: Plugins, limit_s: float, aside: Aside) -> Plugins:
    """Load one plugin in a thread and give what it brings. Raises ConfigError, also when it takes longer than `limit_s`."""
    try:
        return await aside.run(source.origin, lambda: load_plugin(source, before), limit_s)
    except TimeoutError:  # never the plugin's own: that is a ConfigError by now
        late = f"it is still being loaded after {limit_s:g} s; what waits belongs into its handlers, not into its module"
        raise _fault(source, f"{late}, or plugins.load_timeout_s must be longer") from None


def load_plugin(source: Source, before: Plugins = NO_PLUGINS) -> Plugins:
    """Load one plugin and give what it brings. Raises ConfigError, also when it has the name of one `before`."""
    try:
        name, brings = source.find()
        register: object = getattr(brings, "register", None)
    except ConfigError as error:
        raise _fault(source, _reason_of(error)) from None
    except Interrupted:
        raise
    except BaseException as error:  # noqa: BLE001 - importing a plugin runs it: its fault is told and contained
        raise _broken(source, "cannot be imported", error) from None
    twin = next((one.origin for one in before.brought if one.plugin == name), None)
    if twin is not None or name in RESERVED:
        whose = "refold's own" if twin is None else f"that of {twin} as well"
        raise _fault(source, f'its name, {name!r}, is {whose}; a module takes another one by NAME = "…"')
    if not callable(register):
        raise _fault(source, "it has no function `register`")

    def run(registry: object) -> None:
        given: Any = register(registry)
        if inspect.iscoroutine(given):
            given.close()
            raise TypeError("`register` must be a plain function, not an async one")

    try:
        plugins = registered(name, run, source.origin)
    except ConfigError as error:
        raise _fault(source, _reason_of(error)) from None
    except Interrupted:
        raise
    except BaseException as error:  # noqa: BLE001 - as above
        raise _broken(source, "its `register` failed", error) from None
    for fault in _twins(plugins, before):
        raise _fault(source, fault)
    return plugins


def _of_package(one: Installed, written: Written) -> Source:
    def find() -> tuple[str, object]:
        return _checked(one.name), one.load()

    return Source(f"the package {one.package} (entry point {one.name})", "plugins.entry_points", written, find)


def _of_file(number: int, path: Path, written: Written) -> Source:
    def find() -> tuple[str, object]:
        if not path.is_file():
            raise ConfigError("plugins", "there is no such file")
        module = _imported(f"_refold_plugin_{number}_{re.sub('[^A-Za-z0-9]', '_', path.stem)}", path)
        return _checked(getattr(module, "NAME", path.stem)), module

    return Source(str(path), "plugins.paths", written, find)


def _imported(name: str, path: Path) -> ModuleType:
    """Run a file as a module that nothing else can import by accident; one that fails leaves no trace."""
    loader = importlib.machinery.SourceFileLoader(name, str(path))
    spec = importlib.util.spec_from_loader(name, loader)
    assert spec is not None  # the loader says what it is
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # structs look their annotations up there
    try:
        loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


def _checked(name: object) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigError("plugins", f"{name!r} is no name for a plugin; letters, digits, dots, dashes and underscores are")
    return name


def _twins(plugins: Plugins, before: Plugins) -> Iterator[str]:
    taken = {tool.schema.name: "refold" for tool in BUILT_IN}
    taken.update((one.tool.schema.name, f"the plugin {one.plugin}") for one in before.tools)
    for one in plugins.tools:
        name = one.tool.schema.name
        if name in taken:
            yield f"its tool {name!r} has the name of one of {taken[name]}"
        taken[name] = "its own"


def _fault(source: Source, reason: str) -> ConfigError:
    sentence = f"the plugin of {source.origin} cannot be used: {reason}"
    return ConfigError(source.key, sentence, file=source.written.file, line=source.written.line)


def _broken(source: Source, what: str, error: BaseException) -> ConfigError:
    _log.debug("%s %s", source.origin, what, exc_info=error)
    line = repair_surrogates(first_line(error)[:MAX_MESSAGE])
    return _fault(source, f"{what}: {type(error).__name__}{f': {line}' if line else ''}")


def _reason_of(error: RefoldError) -> str:
    return error.message.removeprefix("plugins: ").replace("\n", " ")
