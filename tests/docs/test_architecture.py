"""ARCHITECTURE.md is short, names files and tests that exist, and the page of invariants is that of today's tests."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support import invariants_page

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
MOST_BYTES = 10_000
FOLDERS = ("protocol/refold_protocol", "storage/refold_storage", "server/refold_server")


def code_map(text: str) -> str:
    """Give the block of the code map."""
    return text.partition("## Code map")[2].split("```")[1]


def mapped(text: str) -> set[str]:
    """Give the modules of storage and the folders and top modules of the other packages that the code map names."""
    words = re.findall(r"^ {2}((?:[a-z_*]+/?(?: |$))+)", code_map(text), re.MULTILINE)
    return {word.strip("/") for line in words for word in line.split()}


def test_it_is_short() -> None:
    assert len(TEXT.encode()) <= MOST_BYTES


def test_every_path_that_it_names_exists() -> None:
    named = [path for path in re.findall(r"`((?:tests|server|docs)/[\w/.]+)`", TEXT) if "NAME" not in path]
    named += re.findall(r"\]\(([\w/.]+)\)", TEXT)
    assert len(named) > 15
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_the_code_map_has_every_part() -> None:
    there = {
        path.stem
        for folder in FOLDERS
        for path in (ROOT / folder).iterdir()
        if path.stem.strip("_") == path.stem and path.suffix in ("", ".py") and path.stem != "py"
    }
    known = mapped(TEXT)
    assert {name for name in there if name not in known and not name.startswith("config")} == set()


def test_each_absence_names_what_holds_it() -> None:
    rows = [
        row for row in TEXT.partition("## What is never there")[2].partition("\n## ")[0].split("\n") if row.startswith("| ")
    ]
    assert len(rows) == 11
    assert all(re.search(r"tests/|import-linter", row.rpartition(" | ")[2]) for row in rows[1:])


def test_the_page_of_invariants_is_that_of_the_tests() -> None:
    assert invariants_page.PAGE.read_text(encoding="utf-8") == invariants_page.page()


def test_an_invariant_is_found_at_its_test_and_at_its_file() -> None:
    file = '"""What.\n\nInvariant: One\nthing holds.\n"""\n'
    source = file + 'def test_a():\n    """Invariant: Another."""\ndef test_b():\n    """No."""\n'
    assert list(invariants_page.invariants(source)) == [("One thing holds", ""), ("Another", "test_a")]
