"""`refold schema` prints what the daemon gives and what the golden file has."""

from __future__ import annotations

from pathlib import Path

from tests.support.commands import Here
from tests.support.rpc_examples import schema_text

ROOT = Path(__file__).parents[3]


def test_the_schema_is_the_golden_file(refold: Here) -> None:
    done = refold("schema")
    assert (done.code, done.err) == (0, "")
    assert done.text == schema_text()


def test_the_typescript_declarations_are_the_checked_in_file(refold: Here) -> None:
    done = refold("schema", "--typescript")
    assert (done.code, done.err) == (0, "")
    assert done.out == (ROOT / "docs" / "refold.d.ts").read_bytes()


def test_it_needs_neither_configuration_nor_store(refold: Here) -> None:
    refold.place.configure("nonsense = ")
    assert refold("schema").code == 0
