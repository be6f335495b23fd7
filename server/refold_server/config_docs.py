"""What the tree of settings says to readers: the reference page of the configuration, and its JSON Schema for editors.

Both are pure functions of the tree. Knows no files.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, cast

import msgspec
from msgspec import Struct

from refold_protocol.dialects.dialect_table import DIALECTS
from refold_server.call_config import DEFAULT_MODEL
from refold_server.config import Config, Setting, settings_of
from refold_server.config_faults import expected
from refold_server.providers.presets import PRESETS


def configuration_page() -> str:
    """Give `docs/configuration.md`."""
    return "\n".join(_page()).rstrip("\n") + "\n"


def configuration_schema() -> dict[str, Any]:
    """Give the JSON Schema of the file, for editors that complete and check TOML."""
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "refold's configuration (config.toml)",
        **_table_schema(Config),
    }


def schema_text() -> str:
    """Give `docs/configuration.schema.json`."""
    return json.dumps(configuration_schema(), indent=1, ensure_ascii=False) + "\n"


def _page() -> Iterator[str]:
    yield _HEAD
    top = settings_of(Config)
    yield from _rows([("model", top["model"], f'`"{DEFAULT_MODEL}"`')])
    for name, setting in top.items():
        if setting.table is not None:
            yield from _section((name,), setting, setting.table)
    yield "## Presets\n"
    yield "`providers.NAME.preset` takes these names. What a preset sets can be set beside it, and then goes before it.\n"
    yield "| preset | address | key | further settings |\n| --- | --- | --- | --- |"
    for name, preset in PRESETS.items():
        yield _preset_row(name, preset)
    yield ""
    yield "## Options of dialects\n"
    yield "`providers.NAME.options` takes these, with these defaults:\n"
    for name, dialect in DIALECTS.items():
        yield f"* `{name}`: `{_snake(json.loads(dialect.resolve_options({})))}`"


def _section(prefix: tuple[str, ...], setting: Setting, table: type[Struct]) -> Iterator[str]:
    path = prefix if setting.names is None else (*prefix, setting.names.shown)
    rows = settings_of(table)
    yield f"## {'.'.join(path)}\n"
    yield " ".join((table.__doc__ or "").split()) + "\n"
    nested = {name: row for name, row in rows.items() if row.table is not None}
    yield from _rows([(_shown(name, row), row, _default(row)) for name, row in rows.items() if name not in nested])
    for name, row in nested.items():
        yield f"`{'.'.join(path)}.{name}`: {row.description}.\n"


def _rows(rows: list[tuple[str, Setting, str]]) -> Iterator[str]:
    yield "| setting | expects | default | meaning |\n| --- | --- | --- | --- |"
    for name, setting, default in rows:
        cells = (f"`{name}`", expected(setting), default, setting.description)
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
    yield ""


def _preset_row(name: str, preset: Mapping[str, Any]) -> str:
    address = f"`{preset['base_url']}`" if "base_url" in preset else "yours, in `base_url`"
    key = f"`{preset['key_env']}`" if "key_env" in preset else "none"
    further = {key: value for key, value in preset.items() if key not in ("dialect", "base_url", "key_env")}
    settings = "; ".join(f"`{key} = {_toml(value)}`" for key, value in further.items())
    return f"| `{name}` | {address} | {key} | {settings} |"


def _toml(value: object) -> str:
    if isinstance(value, dict):
        rows = cast("dict[str, object]", value).items()
        return "{ " + ", ".join(f"{key} = {json.dumps(row)}" for key, row in rows) + " }"
    return json.dumps(value)


def _shown(name: str, setting: Setting) -> str:
    return name if setting.names is None else f"{name}.{setting.names.shown}"


def _default(setting: Setting) -> str:
    return "" if setting.default in (None, "", ()) else f"`{json.dumps(setting.default)}`"


def _snake(options: dict[str, Any]) -> str:
    names = {"".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name): name for name in options}
    return "{" + ", ".join(f"{snake} = {json.dumps(options[name])}" for snake, name in names.items()) + "}"


def _table_schema(table: type[Struct]) -> dict[str, Any]:
    rows = settings_of(table)
    return {
        "description": " ".join((table.__doc__ or "").split()),
        "type": "object",
        "additionalProperties": False,
        "properties": {name: _schema(row) for name, row in rows.items()},
    }


def _schema(setting: Setting) -> dict[str, Any]:
    found = _value_schema(setting) if setting.table is None else _table_schema(setting.table)
    found["description"] = setting.description
    if setting.names is None:
        return found
    names = {"pattern": _portable(setting.names.pattern)}
    return {"description": found["description"], "type": "object", "propertyNames": names, "additionalProperties": found}


def _value_schema(setting: Setting) -> dict[str, Any]:
    found = dict(setting.schema) if setting.schema else msgspec.json.schema(setting.kind, schema_hook=_path_schema)
    _make_portable(found)
    if _default(setting):
        found["default"] = setting.default
    return found


def _path_schema(kind: type) -> dict[str, Any]:
    assert kind is Path
    return {"type": "string", "pattern": r"^(~|/|\\|[A-Za-z]:)"}


def _make_portable(schema: dict[str, Any]) -> None:
    """Write the patterns of a schema and of its items as JSON Schema has them."""
    if "pattern" in schema:
        schema["pattern"] = _portable(schema["pattern"])
    if "items" in schema:
        _make_portable(schema["items"])


def _portable(pattern: str) -> str:
    return pattern.replace(r"\A", "^").replace(r"\Z", "$")


_HEAD: Final = """# Configuration

Generated by `make golden` from the annotations of `server/refold_server/config.py`; do not edit.

refold works without any configuration. It reads one TOML file, `config.toml`: the one that `--config FILE` names, else the one
that the environment variable `REFOLD_CONFIG` names, else the one in the platform's configuration folder (`~/.config/refold/` on
Linux). Above the file stand, from the weakest: the client's `initializationOptions` (which cannot set `providers` and
`plugins`), `REFOLD_LIVE_CHECK` (for `checks.live`), `REFOLD_STORE` and then `--store` (for `store.path`), and `--model`. A
workspace configures nothing.

`refold config` shows what is in force and where each value comes from; its exit code is 2 when something is wrong.
[configuration.schema.json](configuration.schema.json) (`refold config --schema`) is the same as JSON Schema. Editors with a
TOML language server complete and check the file when its first line is `#:schema PATH-OR-ADDRESS-OF-THE-SCHEMA`.
"""
