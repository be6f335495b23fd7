"""Plugins of installed packages: which are found, in which order, where nobody looks, and how they are switched off."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from refold_protocol.errors import ConfigError
from refold_server.config import PluginsConfig, Written
from refold_server.plugins.plugin_loading import installed_plugins, load_plugins, plugin_sources
from tests.support.packages import install, plugin_package


def before_all(monkeypatch: pytest.MonkeyPatch, folder: Path | str) -> None:
    """Let modules be looked for in a folder first."""
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    importlib.invalidate_caches()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that modules are imported from, before all others."""
    folder = tmp_path / "site"
    folder.mkdir()
    before = set(sys.modules)
    before_all(monkeypatch, folder)
    yield folder
    for name in set(sys.modules) - before:
        file = getattr(sys.modules[name], "__file__", None)
        if file is not None and str(folder) in file:
            del sys.modules[name]


def found() -> list[tuple[str, str]]:
    return [(one.name, one.package) for one in installed_plugins()]


def test_where_no_package_names_the_group_there_is_nothing(site: Path) -> None:
    install(site, "other", "[console_scripts]\nother = other:main\n")
    assert found() == []


def test_plugins_come_by_name_whatever_their_packages_are_called(site: Path) -> None:
    plugin_package(site, "zoo", "bear", "ant")
    plugin_package(site, "alpha", "cat")
    assert found() == [("ant", "zoo"), ("bear", "zoo"), ("cat", "alpha")]


def test_a_package_counts_once_where_it_is_found_first(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plugin_package(site, "zoo", "old")
    first = tmp_path / "first"
    plugin_package(first, "Zoo", "new")
    before_all(monkeypatch, first)
    assert found() == [("new", "Zoo")]


def test_what_lies_in_the_current_folder_is_nobodys_plugin(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plugin_package(site, "zoo", "bear")
    monkeypatch.chdir(site)
    before_all(monkeypatch, "")
    assert found() == []


def test_a_path_that_is_no_folder_hides_nothing(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plugin_package(site, "zoo", "bear")
    (tmp_path / "file.zip").write_text("no archive")
    before_all(monkeypatch, tmp_path / "file.zip")
    before_all(monkeypatch, tmp_path / "none")
    assert found() == [("bear", "zoo")]


def test_they_are_loaded_before_the_files_of_the_configuration(site: Path, tmp_path: Path) -> None:
    plugin_package(site, "zoo", "bear", "ant")
    path = tmp_path / "aaa.py"
    path.write_text("def register(registry):\n    pass\n")
    loaded = load_plugins(plugin_sources(PluginsConfig((path,))))
    assert [(one.plugin, one.origin) for one in loaded.loaded] == [
        ("ant", "the package zoo (entry point ant)"),
        ("bear", "the package zoo (entry point bear)"),
        ("aaa", str(path)),
    ]
    off = load_plugins(plugin_sources(PluginsConfig((path,), entry_points=False)))
    assert [one.plugin for one in off.loaded] == ["aaa"]


def test_an_object_with_register_is_a_plugin_too(site: Path) -> None:
    text = "class Plugin:\n    def register(self, registry):\n        registry.on(seam, print)\n"
    text += "from refold_server.plugins import OBSERVE as seam\nplugin = Plugin()\n"
    install(site, "zoo", "[refold.plugins]\nbear = zoo:plugin\n", zoo=text)
    loaded = load_plugins(plugin_sources(PluginsConfig()))
    assert [(one.plugin, one.hook.name) for one in loaded.handlers] == [("bear", "log/observe")]


BREAK: dict[str, tuple[Callable[[Path], None], str]] = {
    "import": (lambda site: plugin_package(site, "zoo", "bear", text="1 / 0"), "ZeroDivisionError: division by zero"),
    "module": (lambda site: install(site, "zoo", "[refold.plugins]\nbear = none_there\n"), "ModuleNotFoundError"),
    "object": (lambda site: install(site, "zoo", "[refold.plugins]\nbear = zoo:none\n", zoo=""), "AttributeError"),
    "name": (lambda site: plugin_package(site, "zoo", "a bear"), "'a bear' is no name for a plugin"),
}


@pytest.mark.parametrize("how", BREAK)
def test_one_that_cannot_be_used_is_told_by_its_package_and_by_the_switch(site: Path, how: str) -> None:
    breaks, said = BREAK[how]
    breaks(site)
    with pytest.raises(ConfigError) as caught:
        load_plugins(plugin_sources(PluginsConfig(entry_points_written=Written("/c.toml", 3))))
    assert caught.value.details == {"key": "plugins.entry_points", "file": "/c.toml", "line": 3}
    assert "the plugin of the package zoo (entry point " in caught.value.message
    assert said in caught.value.message


def test_two_packages_with_a_plugin_of_one_name_are_told(site: Path) -> None:
    plugin_package(site, "zoo", "bear")
    plugin_package(site, "farm", "bear")
    with pytest.raises(ConfigError, match=r"package zoo .* its name, 'bear', is that of the package farm"):
        load_plugins(plugin_sources(PluginsConfig()))


def test_looking_costs_no_import_of_importlib_metadata(tmp_path: Path) -> None:
    program = "import sys; from refold_server.plugins.plugin_loading import installed_plugins as f; "
    program += "f(); print('importlib.metadata' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
