"""The loading of plugins: first those of installed packages by name, then the files of the configuration, in its order.

A plugin runs with all that its user may do, so nothing but the user's own file and what is installed can name one. One
that cannot be loaded stops whoever wanted to use plugins, with a sentence: a guard that silently is not there is worse than
none. Its traceback goes to the log at level debug, never to a client. Must not know sessions; runs no handler.

Plugins are imported in threads: whoever waits can be heard meanwhile, and an import that never ends keeps neither a process
alive nor others waiting. No thread can be stopped: one that takes too long goes on.

Entry points are those of the group `refold.plugins`. They are looked for in the folders of `sys.path` itself, because importing
`importlib.metadata` takes longer than opening a session does; only where a package names the group is that imported. The
current folder is never looked into: what lies in a workspace is nobody's plugin.
"""

from __future__ import annotations

import asyncio
import importlib.machinery
import importlib.util
import inspect
import logging
import os
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, Final, TypeVar

from msgspec import Struct

from refold_protocol.errors import ConfigError, PluginError, RefoldError
from refold_protocol.json_text import repair_surrogates
from refold_server.config import PluginsConfig, Written
from refold_server.plugins.hook_runner import MAX_MESSAGE
from refold_server.plugins.plugin_registry import NO_PLUGINS, Plugins, registered
from refold_server.tools.session_tools import BUILT_IN
from refold_server.tools.tool_failure import Interrupted, first_line

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
    return any(GROUP.encode() in _bytes_of(Path(name, "entry_points.txt")) for name in names)


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # a package without entry points
        return b""


T = TypeVar("T")


class ImportThreads:
    """Runs work in threads, one for each piece, and remembers which still run. For one event loop."""

    def __init__(self) -> None:
        self._late: Final[dict[str, threading.Thread]] = {}

    async def run(self, name: str, work: Callable[[], T], limit_s: float) -> T:
        """Do work in a thread of its own and give what it gives. Raises what it raises, and PluginError where that is neither
        an error nor refold's own doing, as `sys.exit()` or a cancellation out of a module.

        Raises TimeoutError when it takes longer than `limit_s` seconds, and at once while earlier work of that name that did
        still runs. Cancelled, it leaves the thread alone.
        """
        earlier = self._late.pop(name, None)
        if earlier is not None and earlier.is_alive():
            self._late[name] = earlier
            raise TimeoutError
        thread, answer = _begun(work)
        try:
            async with asyncio.timeout(limit_s):
                return (await answer)[0]
        except TimeoutError:
            if answer.cancelled():  # else the work's own
                self._late[name] = thread
            raise


def _begun(work: Callable[[], T]) -> tuple[threading.Thread, asyncio.Future[tuple[T]]]:
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[tuple[T]] = loop.create_future()

    def settle(given: tuple[T] | None, error: Exception) -> None:
        if answer.done():  # nobody waits any more
            return
        if given is None:
            answer.set_exception(error)
        else:
            answer.set_result(given)

    def run() -> None:
        given: tuple[T] | None = None
        failure: Exception = PluginError("a plugin ended the thread in which it was loaded")
        try:
            given = (work(),)
        except Exception as error:  # noqa: BLE001 - it is raised where it is waited for
            failure = error
        except BaseException as error:  # noqa: BLE001 - no signal reaches this thread: a module raised it itself
            failure = PluginError(f"{type(error).__name__} came out of a plugin while it was loaded")
        with suppress(RuntimeError):  # the loop is closed: the connection is over
            loop.call_soon_threadsafe(settle, given, failure)

    thread = threading.Thread(target=run, name="refold plugins", daemon=True)
    thread.start()
    return thread, answer


RESERVED: Final = frozenset({"refold", "builtin"})
"""Names that no plugin can have: they are those of what comes with refold."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_log: Final = logging.getLogger(__name__)


class PluginSource(Struct, frozen=True):
    """A place where a plugin is. `key` is the setting that named it, which stands at `written`."""

    origin: str
    key: str
    written: Written
    find: Callable[[], tuple[str, object]]
    """Gives its name, and the module or object that has `register`. Raises whatever importing it raises."""


def plugin_sources(config: PluginsConfig) -> tuple[PluginSource, ...]:
    """Give the places of all plugins, in the order in which they are loaded. Imports none of them."""
    installed = installed_plugins() if config.entry_points else ()
    return (
        *(_of_package(one, config.entry_points_written) for one in installed),
        *(_of_file(number, path, config.paths_written) for number, path in enumerate(config.paths)),
    )


def load_plugins(sources: Iterable[PluginSource], before: Plugins = NO_PLUGINS) -> Plugins:
    """Load plugins after those `before`; give all. Raises ConfigError for the first that cannot be loaded, and for two of
    one name, or with tools of one name."""
    plugins = before
    for source in sources:
        plugins = plugins.then(load_plugin(source, plugins))
    return plugins


async def load_plugins_in_threads(
    sources: Iterable[PluginSource],
    limit_s: float,
    threads: ImportThreads,
    left_out: Callable[[ConfigError], None] | None = None,
) -> Plugins:
    """Load plugins in threads, within `limit_s` seconds each, and give all. Raises ConfigError for the first that cannot be
    loaded; with `left_out` it is told there and left out. One that takes too long goes on in its thread, and is not tried again
    before that has ended."""
    plugins = NO_PLUGINS
    for source in sources:
        try:
            plugins = plugins.then(await load_plugin_in_thread(source, plugins, limit_s, threads))
        except ConfigError as error:
            if left_out is None:
                raise
            left_out(error)
    return plugins


async def load_plugin_in_thread(source: PluginSource, before: Plugins, limit_s: float, threads: ImportThreads) -> Plugins:
    """Load one plugin in a thread and give what it brings. Raises ConfigError, also when it takes longer than `limit_s`."""
    try:
        return await threads.run(source.origin, lambda: load_plugin(source, before), limit_s)
    except TimeoutError:  # never the plugin's own: that is a ConfigError by now
        late = f"it is still being loaded after {limit_s:g} s; what waits belongs into its handlers, not into its module"
        raise _fault(source, f"{late}, or plugins.load_timeout_s must be longer") from None


def load_plugin(source: PluginSource, before: Plugins = NO_PLUGINS) -> Plugins:
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
    twin = next((one.origin for one in before.loaded if one.plugin == name), None)
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


def _of_package(one: Installed, written: Written) -> PluginSource:
    def find() -> tuple[str, object]:
        return _checked(one.name), one.load()

    return PluginSource(f"the package {one.package} (entry point {one.name})", "plugins.entry_points", written, find)


def _of_file(number: int, path: Path, written: Written) -> PluginSource:
    def find() -> tuple[str, object]:
        if not path.is_file():
            raise ConfigError("plugins", "there is no such file")
        module = _imported(f"_refold_plugin_{number}_{re.sub('[^A-Za-z0-9]', '_', path.stem)}", path)
        return _checked(getattr(module, "NAME", path.stem)), module

    return PluginSource(str(path), "plugins.paths", written, find)


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


def _fault(source: PluginSource, reason: str) -> ConfigError:
    sentence = f"the plugin of {source.origin} cannot be used: {reason}"
    return ConfigError(source.key, sentence, file=source.written.file, line=source.written.line)


def _broken(source: PluginSource, what: str, error: BaseException) -> ConfigError:
    _log.debug("%s %s", source.origin, what, exc_info=error)
    line = repair_surrogates(first_line(error)[:MAX_MESSAGE])
    return _fault(source, f"{what}: {type(error).__name__}{f': {line}' if line else ''}")


def _reason_of(error: RefoldError) -> str:
    return error.message.removeprefix("plugins: ").replace("\n", " ")
