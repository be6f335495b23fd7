"""The house rules that reading the sources can check: sizes, names, docstrings, circles of imports, what must not occur.

Invariant: Sources stay small and say what they own.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[2]
PRODUCT = [path for top in ("protocol", "storage", "server") for path in sorted((ROOT / top).rglob("*.py"))]
SOURCES = [*PRODUCT, *sorted((ROOT / "editors/python").rglob("*.py"))]
PACKAGES = ("refold_protocol", "refold_storage", "refold_server", "refold_client")
EMPTY_NAMES = {"utils", "util", "helpers", "helper", "manager", "common", "misc"}
MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 40

# What still breaks a rule, by name. A name that no longer breaks it must leave its list; the lists never grow.


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


def faults_of(source: str) -> list[str]:
    """Say what is too long in a file, and whether it fails to say what it is."""
    lines = source.count("\n")
    faults = [] if lines <= MAX_FILE_LINES else [f"{lines} lines"]
    faults += [] if ast.get_docstring(ast.parse(source)) else ["no docstring"]
    return faults + long_functions(source)


def repeated(names: Iterable[str]) -> set[str]:
    """Give the names that occur more than once."""
    return {name for name, count in Counter(names).items() if count > 1}


def class_names(source: str) -> list[str]:
    """Name the classes of a file, inner ones too."""
    return [node.name for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef)]


def circles(imports: Mapping[str, Iterable[str]]) -> set[frozenset[str]]:
    """Give the largest sets of modules of which each reaches each other by its imports."""
    reached: dict[str, set[str]] = {}
    for start in imports:
        seen: set[str] = set()
        ahead = list(imports[start])
        while ahead:
            name = ahead.pop()
            if name not in seen:
                seen.add(name)
                ahead.extend(imports.get(name, ()))
        reached[start] = seen
    return {frozenset(other for other in seen if start in reached[other]) for start, seen in reached.items() if start in seen}


def test_there_are_sources_to_look_at() -> None:
    assert len(SOURCES) > 40


def test_a_source_file_is_short_and_says_what_it_is() -> None:
    faults = {_name(path): faults_of(path.read_text(encoding="utf-8")) for path in SOURCES}
    assert {name: found for name, found in faults.items() if found} == {}


def test_a_source_file_has_a_name_that_says_something() -> None:
    assert [name for name in map(_name, SOURCES) if not EMPTY_NAMES.isdisjoint(re.split("[/_.]", name))] == []


def test_a_file_name_stands_once_in_the_product() -> None:
    names = repeated(path.stem for path in PRODUCT if path.stem not in ("__init__", "__main__"))
    assert names == set()


def test_a_class_name_stands_once_in_the_product() -> None:
    names = repeated(name for path in PRODUCT for name in class_names(path.read_text(encoding="utf-8")))
    assert names == set()


def test_no_module_imports_itself_through_others() -> None:
    graph = grimp.build_graph(*PACKAGES, cache_dir=None)  # imports inside functions and for type checkers count
    assert circles({name: graph.find_modules_directly_imported_by(name) for name in graph.modules}) == set()


def test_text_is_split_at_line_feeds_only() -> None:
    assert [_name(path) for path in SOURCES if ".splitlines(" in path.read_text(encoding="utf-8")] == []


def test_a_file_is_measured_and_asked_for_its_docstring() -> None:
    said = '"""The fits."""\n'
    assert faults_of(said + "\n" * (MAX_FILE_LINES - 1)) == []
    assert faults_of(said + "\n" * MAX_FILE_LINES) == [f"{MAX_FILE_LINES + 1} lines"]
    assert faults_of("fits = 1\n") == ["no docstring"]


def test_the_measure_of_functions_does_not_count_docstrings_and_sees_inner_ones() -> None:
    body = "\n".join(f"    a{line} = 1" for line in range(MAX_FUNCTION_LINES))
    said = '    """' + "\n" * 60 + '    """\n'
    assert long_functions(f"def fits():\n{said}    pass\n") == []
    assert long_functions(f"class C:\n  class D:\n   def long(self):\n{body}") == [f"long: {MAX_FUNCTION_LINES + 1} lines"]


def test_the_search_for_circles_tells_two_of_them_apart_and_passes_by_what_only_leads_there() -> None:
    imports = {"in": ["a"], "a": ["b"], "b": ["c", "x"], "c": ["a"], "x": ["y"], "y": ["x", "out"], "out": []}
    assert circles(imports) == {frozenset("abc"), frozenset("xy")}


@pytest.mark.parametrize(
    "package", ["protocol/refold_protocol", "storage/refold_storage", "server/refold_server", "editors/python/refold_client"]
)
def test_every_package_ships_its_types(package: str) -> None:
    assert (ROOT / package / "py.typed").read_bytes() == b""
