"""Each invariant of ARCHITECTURE.md names a test, and the tests that it names exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
ROWS = [row for row in TEXT.partition("## Invariants")[2].split("\n") if row.startswith("| ")][1:]


def missing_tests(rows: list[str], sources: dict[str, str]) -> list[str]:
    """Give the rows that name no test at all, and the files and tests that rows name and `sources` (path to text) lack."""
    missing: list[str] = []
    everything = "\n".join(sources.values())
    for row in rows:
        named = set(re.findall(r"[\w/]*\btest_\w+(?:\.py)?", row.rpartition(" | ")[2]))
        if not named and "import-linter" not in row:
            missing.append(row)
        for name in sorted(named):
            if name.endswith(".py"):
                known = any(path == name or path.endswith(f"/{name}") for path in sources)
            else:
                known = re.search(rf"def {name}\(", everything) is not None
            if not known:
                missing.append(name)
    return missing


def test_every_invariant_names_tests_that_exist() -> None:
    sources = {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")
    }
    assert len(ROWS) > 10
    assert missing_tests(ROWS, sources) == []


def test_a_row_without_a_test_and_a_name_that_is_gone_are_found() -> None:
    sources = {"tests/a/test_a.py": "def test_one() -> None: ..."}
    assert missing_tests(["| Fine | `tests/a/test_a.py::test_one` |", "| Fine | `test_a.py` |"], sources) == []
    assert missing_tests(["| Bare | nothing |"], sources) == ["| Bare | nothing |"]
    assert missing_tests(["| Gone | `test_a.py::test_two`, `tests/test_b.py` |"], sources) == ["test_two", "tests/test_b.py"]
