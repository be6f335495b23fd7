"""The generated documents are those of today's tables, and say something of every row of every table.

Invariant: The reference page and the TypeScript declarations are those of today's tables.
"""

from __future__ import annotations

import re

import pytest

from refold_protocol.errors import KINDS
from refold_protocol.session.event_data import TURN_ENDS
from refold_protocol.session.events import EVENT_TYPES
from refold_server.config_docs import configuration_page, schema_text
from refold_server.lsp.lsp_bridge import LANGUAGE_METHODS
from refold_server.rpc.method_table import METHODS
from refold_server.rpc.wire_schema import declarations
from tests.support.reference_page import CONFIGURATION, CONFIGURATION_SCHEMA, DOCS, PAGE, TYPESCRIPT, golden_messages, page

TEXT = page(golden_messages())


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == TEXT, "run `make golden` and read the diff"


def test_the_declarations_are_up_to_date() -> None:
    assert TYPESCRIPT.read_text(encoding="utf-8") == declarations(METHODS), "run `make golden` and read the diff"


def test_the_configuration_page_and_its_schema_are_up_to_date() -> None:
    assert CONFIGURATION.read_text(encoding="utf-8") == configuration_page(), "run `make golden` and read the diff"
    assert CONFIGURATION_SCHEMA.read_text(encoding="utf-8") == schema_text(), "run `make golden` and read the diff"


@pytest.mark.parametrize("name", [*METHODS, *(f"event {name}" for name in EVENT_TYPES)])
def test_every_method_and_every_event_type_has_its_section_with_its_golden_messages(name: str) -> None:
    methods, _, events = TEXT.partition("\n## Events\n")
    page = events if name.startswith("event ") else methods
    section = page.partition(f"\n### {name.removeprefix('event ')}\n")[2].partition("\n### ")[0]
    assert golden_messages()[name] in section


def test_every_other_row_is_on_the_page() -> None:
    for word in (*KINDS, *TURN_ENDS, *LANGUAGE_METHODS):
        assert f"| `{word}` |" in TEXT


def test_every_type_that_a_table_names_has_a_section_or_a_declaration() -> None:
    cells = re.findall(r"^\| `\w+` \| (`.*?`) \|", TEXT, re.MULTILINE)
    named = {word for cell in cells for word in re.findall(r"\b[A-Z]\w+", cell)}
    assert len(named) > 20
    declared = declarations(METHODS)
    for name in named:
        assert f"\n### {name}\n" in TEXT or f"export type {name}" in declared or f"export interface {name}" in declared, name


def test_the_readme_leads_to_the_page() -> None:
    assert f"(docs/{PAGE.name})" in (DOCS.parent / "README.md").read_text(encoding="utf-8")
