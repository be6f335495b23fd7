"""How plugins get in: which files are loaded in which order, and what is said of one that cannot be."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import Struct

from refold_protocol.errors import ConfigError
from refold_server.config import PluginsConfig, Written
from refold_server.plugins import OBSERVE, PluginRegistry, tool
from refold_server.plugins.plugin_loading import load_plugins, plugin_sources
from refold_server.plugins.plugin_registry import Plugins, registered
from refold_server.tools.tool_failure import Interrupted

WRITTEN = Written("/c.toml", 7)


class Nothing(Struct, frozen=True, forbid_unknown_fields=True):
    """No arguments."""


class Load:
    """Writes plugins and loads them, in the order in which they were written."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.paths: list[Path] = []

    def file(self, name: str, text: str) -> Path:
        path = self._root / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        self.paths.append(path)
        return path

    def __call__(self) -> Plugins:
        config = PluginsConfig(tuple(self.paths), entry_points=False, paths_written=WRITTEN)
        return load_plugins(plugin_sources(config))

    def fault(self) -> str:
        """Give what is said of the plugin that cannot be loaded, which must name the setting and its place."""
        with pytest.raises(ConfigError) as caught:
            self()
        assert caught.value.key == "plugins.paths"
        assert caught.value.details == {"key": "plugins.paths", "file": "/c.toml", "line": 7}
        assert "\n" not in caught.value.message
        assert "Traceback" not in caught.value.message
        return caught.value.message.removeprefix("plugins.paths: ").removesuffix(" (/c.toml, line 7)")


@pytest.fixture
def load(tmp_path: Path) -> Load:
    return Load(tmp_path)


NOTHING = "def register(registry):\n    pass\n"


def test_plugins_are_loaded_in_the_order_of_the_setting_and_named_after_their_files(load: Load) -> None:
    later = load.file("b.py", NOTHING)
    earlier = load.file("a.py", NOTHING)
    assert [(one.plugin, one.origin) for one in load().loaded] == [("b", str(later)), ("a", str(earlier))]


def test_a_module_may_name_itself(load: Load) -> None:
    load.file("a.py", f'NAME = "notes"\n{NOTHING}')
    load.file("x/a.py", NOTHING)
    assert [one.plugin for one in load().loaded] == ["notes", "a"]


def test_what_a_plugin_registers_is_there(load: Load) -> None:
    load.file(
        "a.py",
        "from msgspec import Struct\n"
        "from refold_server.plugins import OBSERVE, tool\n"
        "class In(Struct, frozen=True):\n    n: int\n"
        "class P(Struct, frozen=True, forbid_unknown_fields=True):\n    one: 'In'\n"  # annotations are looked up by module
        "class D(Struct, frozen=True):\n    n: int\n"
        "async def run(context, params): return ''\n"
        "def register(registry):\n"
        "    registry.on(OBSERVE, print)\n"
        "    registry.tool(tool('note', 'Take a note.', P, run))\n"
        "    registry.event_type('a/noted', D, ignorable=True)\n",
    )
    plugins = load()
    assert [one.plugin for one in plugins.at(OBSERVE)] == ["a"]
    assert [one.tool.schema.name for one in plugins.tools] == ["note"]
    assert [(one.name, one.ignorable) for one in plugins.event_types] == [("a/noted", True)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import not_there_at_all", "cannot be imported: ModuleNotFoundError: No module named 'not_there_at_all'"),
        ("def broken(:", "cannot be imported: SyntaxError: invalid syntax"),
        ("raise SystemExit(3)", "cannot be imported: SystemExit: 3"),
        ("raise KeyboardInterrupt", "cannot be imported: KeyboardInterrupt"),
        ("def register(registry): raise KeyboardInterrupt", "its `register` failed: KeyboardInterrupt"),
        ("def __getattr__(name): raise KeyboardInterrupt(name)", "cannot be imported: KeyboardInterrupt"),
        ("class E(Exception):\n  def __str__(self): raise SystemExit\nraise E", "cannot be imported: E"),
        ("raise GeneratorExit", "cannot be imported: GeneratorExit"),
        ("import asyncio\nraise asyncio.CancelledError", "cannot be imported: CancelledError"),
        ("raise BaseExceptionGroup('two', [SystemExit(3)])", "cannot be imported: BaseExceptionGroup: two"),
        ("def register(registry): raise GeneratorExit", "its `register` failed: GeneratorExit"),
        ("raise ValueError('one\\ntwo')", "cannot be imported: ValueError: one"),
        ("class E(Exception):\n  def __str__(self): raise TypeError\nraise E", "cannot be imported: E"),
        ("x = 1", "it has no function `register`"),
        ("register = 1", "it has no function `register`"),
        ("def register(registry): raise KeyError('k')", "its `register` failed: KeyError: 'k'"),
        ("def register(): pass", "its `register` failed: TypeError: register() takes 0 positional arguments"),
        ("async def register(registry): pass", "`register` must be a plain function, not an async one"),
        (f"NAME = 'a b'\n{NOTHING}", "'a b' is no name for a plugin"),
        (f"NAME = 3\n{NOTHING}", "3 is no name for a plugin"),
        (f"NAME = 'refold'\n{NOTHING}", "its name, 'refold', is refold's own"),
        ("def register(registry): registry.on('log/observe', print)", "its `register` failed: AttributeError"),
        (
            "from refold_server.plugins import OBSERVE\ndef register(registry): registry.on(OBSERVE, 3)",
            "plugin 'p': the handler for log/observe cannot be called: 3",
        ),
        (
            "from msgspec import Struct\nclass D(Struct, frozen=True): pass\n"
            "def register(registry): registry.event_type('other/noted', D, ignorable=True)",
            "the event type 'other/noted' must be p/ and a word",
        ),
        (
            "from msgspec import Struct\nclass D(Struct): pass\n"
            "def register(registry): registry.event_type('p/noted', D, ignorable=True)",
            "the data of p/noted must be a frozen struct",
        ),
        (
            "def register(registry): registry.event_type('p/noted', dict, ignorable=True)",
            "the data of p/noted must be a frozen struct",
        ),
        (
            "from msgspec import Struct\nclass D(Struct, frozen=True, eq=False): pass\n"
            "def register(registry): registry.event_type('p/noted', D, ignorable=True)",
            "must be a frozen struct whose equality is that of its fields",
        ),
        (
            "from msgspec import Struct\nclass D(Struct, frozen=True):\n  a: complex\n"
            "def register(registry): registry.event_type('p/noted', D, ignorable=True)",
            "the data of p/noted cannot be read from JSON",
        ),
        (
            "from msgspec import Struct\nclass D(Struct, frozen=True): pass\nNAME = 'turn'\n"
            "def register(registry): registry.event_type('turn/noted', D, ignorable=True)",
            "the event types turn/… are refold's own",
        ),
        (
            "from msgspec import Struct\nclass D(Struct, frozen=True): pass\n"
            "def register(registry):\n  for name in 'ab': registry.event_type('p/' + name, D, ignorable=True)",
            "the event type 'p/b' has the name or the data of another one",
        ),
    ],
)
def test_a_plugin_that_cannot_be_used_is_told_by_its_file_with_the_reason(load: Load, text: str, said: str) -> None:
    path = load.file("p.py", text)
    fault = load.fault()
    assert fault.startswith(f"the plugin of {path} cannot be used: ")
    assert said in fault


def test_an_interrupt_is_a_persons_where_it_came_from_a_signal(load: Load) -> None:
    load.file("p.py", "from refold_server.tools.tool_failure import Interrupted\nraise Interrupted")
    with pytest.raises(Interrupted):
        load()
    load.file("p.py", "from refold_server.tools.tool_failure import Interrupted\ndef register(registry): raise Interrupted")
    with pytest.raises(Interrupted):
        load()


def test_a_file_that_is_not_there_is_told(load: Load, tmp_path: Path) -> None:
    load.paths = [tmp_path / "none.py"]
    assert load.fault() == f"the plugin of {tmp_path / 'none.py'} cannot be used: there is no such file"
    load.paths = [tmp_path]
    assert load.fault().endswith("there is no such file")


def test_two_plugins_of_one_name_are_told_with_both_files(load: Load) -> None:
    first = load.file("a.py", NOTHING)
    second = load.file("x/a.py", NOTHING)
    assert f"the plugin of {second} cannot be used: its name, 'a', is that of {first} as well" in load.fault()


def bringing(name: str) -> str:
    """A plugin that brings a tool."""
    return (
        "from msgspec import Struct\nfrom refold_server.plugins import tool\n"
        "class P(Struct, frozen=True, forbid_unknown_fields=True): pass\n"
        "async def run(context, params): return ''\n"
        f"def register(registry): registry.tool(tool({name!r}, '', P, run))\n"
    )


def test_two_tools_of_one_name_are_told_also_one_of_refolds_own(load: Load) -> None:
    load.file("a.py", bringing("note"))
    load.file("b.py", bringing("note"))
    assert load.fault().endswith("b.py cannot be used: its tool 'note' has the name of one of the plugin a")
    load.paths = []
    load.file("c.py", bringing("read_file"))
    assert load.fault().endswith("its tool 'read_file' has the name of one of refold")


@pytest.mark.parametrize("name", ["a b", "é", "a" * 65, "a.b"])
def test_a_tool_has_a_name_that_every_provider_takes(load: Load, name: str) -> None:
    load.file("a.py", bringing(name))
    assert "needs a name of 1 to 64 letters" in load.fault()


def test_a_plugin_that_failed_leaves_no_module_behind_and_its_traceback_only_at_level_debug(
    load: Load, caplog: pytest.LogCaptureFixture
) -> None:
    load.file("left_behind.py", "def helper():\n    raise ValueError('deep down')\nhelper()\n")
    before = set(sys.modules)
    with caplog.at_level(logging.DEBUG, "refold_server.plugins"):
        load.fault()
    assert {name for name in set(sys.modules) - before if "plugin" in name} == set()
    (record,) = caplog.records
    assert record.levelno == logging.DEBUG
    assert record.exc_info is not None


def test_nothing_can_be_registered_once_register_has_returned() -> None:
    kept: list[PluginRegistry] = []
    registered("p", kept.append)

    async def run(context: object, params: Nothing) -> str:
        return ""

    late: list[Callable[[PluginRegistry], None]] = [
        lambda registry: registry.on(OBSERVE, print),
        lambda registry: registry.tool(tool("note", "", Nothing, run)),
        lambda registry: registry.event_type("p/x", Nothing, ignorable=True),
    ]
    for one in late:
        with pytest.raises(ConfigError, match="registers after `register` has returned"):
            one(kept[0])


def test_a_plugin_file_with_the_names_of_the_first_version_can_still_be_loaded(load: Load) -> None:
    names = "SEAMS, Composing, Place, Routing, Seam, StepAhead, StepOver"
    used = "def register(registry): assert SESSION_PREFIX in SEAMS"
    load.file("p.py", f"from refold_server.plugins import SESSION_PREFIX, {names}\n{used}")
    assert [one.plugin for one in load().loaded] == ["p"]
