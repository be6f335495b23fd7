"""What can be checked of the house rules by reading the sources: sizes, names, docstrings, what must not occur."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = [path for top in ("protocol", "storage", "server", "editors/python") for path in sorted((ROOT / top).rglob("*.py"))]
EMPTY_NAMES = {"utils", "util", "helpers", "helper", "manager", "common", "misc"}
MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 40


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def long_functions(source: str) -> list[str]:
    """Name the functions of more than MAX_FUNCTION_LINES lines, docstrings not counted."""
    found: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            said = ast.get_docstring(node, clean=False)
            lines = (node.end_lineno or node.lineno) - node.lineno + 1 - (0 if said is None else said.count("\n") + 1)
            if lines > MAX_FUNCTION_LINES:
                found.append(f"{node.name}: {lines} lines")
    return found


def test_there_are_sources_to_look_at() -> None:
    assert len(SOURCES) > 40


@pytest.mark.parametrize("path", SOURCES, ids=_name)
def test_a_source_file_is_short_and_says_what_it_owns(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    assert source.count("\n") <= MAX_FILE_LINES
    assert ast.get_docstring(ast.parse(source))
    assert long_functions(source) == []


@pytest.mark.parametrize("path", SOURCES, ids=_name)
def test_a_source_file_has_a_name_that_says_something(path: Path) -> None:
    parts = path.relative_to(ROOT).with_suffix("").parts
    assert EMPTY_NAMES.isdisjoint(word for part in parts for word in part.split("_"))


@pytest.mark.parametrize("path", SOURCES, ids=_name)
def test_text_is_split_at_line_feeds_only(path: Path) -> None:
    assert ".splitlines(" not in path.read_text(encoding="utf-8")


def test_the_measure_of_functions_does_not_count_docstrings_and_sees_inner_ones() -> None:
    body = "\n".join(f"    a{line} = 1" for line in range(MAX_FUNCTION_LINES))
    said = '    """' + "\n" * 60 + '    """\n'
    assert long_functions(f"def fits():\n{said}    pass\n") == []
    assert long_functions(f"class C:\n  class D:\n   def long(self):\n{body}") == [f"long: {MAX_FUNCTION_LINES + 1} lines"]


@pytest.mark.parametrize(
    "package", ["protocol/refold_protocol", "storage/refold_storage", "server/refold_server", "editors/python/refold_client"]
)
def test_every_package_ships_its_types(package: str) -> None:
    assert (ROOT / package / "py.typed").read_bytes() == b""
