"""The page of invariants: each sentence that a test's docstring begins with `Invariant:`, and where it is held.

`python -m tests.support.invariants_page` writes `docs/invariants.md`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "invariants.md"
_HEAD = """# Invariants

What holds whatever happens, and the test that sees to it. Written from the docstrings of the tests (`make golden`).

| invariant | test |
|---|---|
"""


def invariants(source: str) -> Iterator[tuple[str, str]]:
    """Give each invariant of a test file, with the name of the test function; an empty name for the file as a whole."""
    tree = ast.parse(source)
    tests = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    for name, node in [("", tree), *((node.name, node) for node in tests)]:
        for paragraph in (ast.get_docstring(node) or "").split("\n\n"):
            found = re.match(r"Invariant: (.+)", paragraph, re.DOTALL)
            if found is not None:
                yield " ".join(found[1].split()).removesuffix("."), name


def page() -> str:
    """Give the page."""
    rows: list[str] = []
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        where = path.relative_to(ROOT).as_posix()
        for sentence, name in invariants(path.read_text(encoding="utf-8")):
            rows.append(f"| {sentence} | [`{name or path.stem}`](../{where}) |\n")
    return _HEAD + "".join(rows)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
