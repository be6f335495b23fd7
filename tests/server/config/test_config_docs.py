"""The page and the schema of the configuration say of each setting what its annotation says."""

from __future__ import annotations

from typing import Any

from refold_server.config import Config, settings_of
from refold_server.config_docs import configuration_page, configuration_schema

SCHEMA = configuration_schema()


def _at(*path: str) -> dict[str, Any]:
    found: dict[str, Any] = SCHEMA
    for part in path:
        found = found["additionalProperties"] if part == "*" else found["properties"][part]
    return found


def test_every_table_has_its_section_and_every_setting_its_row() -> None:
    page = configuration_page()
    for name, setting in settings_of(Config).items():
        if setting.table is not None:
            shown = name if setting.names is None else f"{name}.{setting.names.shown}"
            section = page.partition(f"\n## {shown}\n")[2].partition("\n## ")[0]
            for row in settings_of(setting.table).values():
                assert f"{row.name}" in section
                assert row.description in section
    assert "| `steps` | a whole number from 1 to 100000 | `50` | most steps of one turn |" in page
    assert "include_usage = true" in page


def test_the_schema_has_types_bounds_words_and_defaults() -> None:
    assert _at("limits", "steps") == {
        "type": "integer",
        "minimum": 1,
        "maximum": 100_000,
        "default": 50,
        "description": "most steps of one turn",
    }
    assert _at("permissions", "mode")["enum"] == ["allow", "ask", "deny"]
    assert _at("plugins", "paths")["items"]["type"] == "string"
    assert _at("providers", "*", "headers", "*")["type"] == "string"
    assert _at("providers", "*", "options")["type"] == "object"
    assert _at("models", "*", "extra")["type"] == "object"
    assert _at("models", "*", "compaction", "auto")["type"] == "boolean"
    assert _at("store")["additionalProperties"] is False


def test_the_patterns_of_the_schema_are_those_of_json_schema() -> None:
    text = repr(SCHEMA)
    assert "\\\\A" not in text
    assert "\\\\Z" not in text
    assert _at("models")["propertyNames"]["pattern"].endswith("$")
