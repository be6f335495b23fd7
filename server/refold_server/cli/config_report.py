"""Settings in force, and where each comes from: what `refold config` shows.

Reaches no network, opens no store, loads no plugin, needs no key. Never shows a secret: of what may hold one it says only that
it is set, except for the name of a variable that the environment has.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal

from msgspec import UNSET, Struct, UnsetType

from refold_server.call_config import DEFAULT_MODEL
from refold_server.cli.formatting import printable
from refold_server.cli.terminal import Style
from refold_server.config import Config, Setting, settings_of
from refold_server.config_faults import BUILT_IN, Key, Origin, key_text
from refold_server.config_file import (
    Settings,
    build_config,
    config_path,
    default_skills_path,
    default_store_path,
    read_settings,
)


class SettingInForce(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A setting. `value` is absent where it is hidden; `name` is that of the file, variable or option it comes from, `line`
    its line in the file where one search finds it."""

    key: str
    source: Literal["built-in", "file", "client", "environment", "option"]
    value: Any = UNSET
    hidden: bool = False
    name: str | UnsetType = UNSET
    line: int | UnsetType = UNSET


class ConfigReport(Struct, frozen=True, rename="camel"):
    """The settings in force, and the file: whether it is there, and what names it (None: it is the platform's)."""

    file: str
    exists: bool
    named_by: str | None
    settings: tuple[SettingInForce, ...]


def config_report(path: Path | None, env: Mapping[str, str], store: str | None = None) -> ConfigReport:
    """Give what is in force where `--config` is `path` and `--store` is `store`. Raises ConfigError for the first fault."""
    file, named_by = config_path(path, env)
    given = read_settings(path, env, store=store)
    build_config(given, default_store_path)  # raises for settings that do not go together
    return ConfigReport(str(file), file.is_file(), named_by, tuple(_settings_in_force(given, env)))


def report_lines(report: ConfigReport, style: Style) -> Iterator[str]:
    """Give the report line by line: the file, then each setting with its value and where it comes from."""
    named = "" if report.named_by is None else f" (named by {report.named_by})"
    absent = "" if report.exists else " (not there: the defaults hold)"
    yield style.dim(f"# {printable(report.file)}{named}{absent}")
    rows = [(row.key, _value_text(row), _source_text(row)) for row in report.settings]
    keys = min(_WIDEST, max(len(key) for key, _, _ in rows))
    values = min(_WIDEST, max(len(value) for _, value, _ in rows))
    for key, value, source in rows:
        yield f"{printable(key):<{keys}}  {printable(value):<{values}}  {style.dim(printable(source))}"


def _settings_in_force(given: Settings, env: Mapping[str, str]) -> Iterator[SettingInForce]:
    defaults: dict[Key, object] = {
        ("model",): DEFAULT_MODEL,
        ("store", "path"): default_store_path(),
        ("prefix", "skills_folder"): default_skills_path(),
    }
    for key, setting in _leaves(Config, (), given):
        row = given.get(key)
        value = row.value if row is not None else defaults.get(key, setting.default)
        if row is not None or key[0] not in _NAMED:
            yield _in_force(key, setting, value, BUILT_IN if row is None else row.origin, env)


def _leaves(table: type[Struct], prefix: Key, given: Settings) -> Iterator[tuple[Key, Setting]]:
    """Give every setting below a table; where the user names the members, those of the names that were given."""
    for name, setting in settings_of(table).items():
        keys: list[Key] = [(*prefix, name)]
        if setting.names is not None:
            size = len(prefix) + 2
            keys = list(dict.fromkeys(key[:size] for key in given if key[: size - 1] == keys[0] and len(key) >= size))
        for key in keys:
            if setting.table is None:
                yield key, setting
            else:
                yield from _leaves(setting.table, key, given)


def _in_force(key: Key, setting: Setting, value: object, origin: Origin, env: Mapping[str, str]) -> SettingInForce:
    hidden = setting.secret and not (key[-1] == "key_env" and value in env)
    return SettingInForce(
        key_text(key),
        origin.kind,
        UNSET if hidden else _plain(value),
        hidden,
        UNSET if origin is BUILT_IN else origin.name,
        origin.line(key) or UNSET,
    )


def _plain(value: object) -> object:
    if isinstance(value, tuple):
        return [str(item) for item in value]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return str(value) if isinstance(value, Path) else value


def _value_text(row: SettingInForce) -> str:
    if row.hidden:
        return "(set, not shown)"
    return "(not set)" if row.value in (None, "") else json.dumps(row.value, ensure_ascii=False)


def _source_text(row: SettingInForce) -> str:
    if row.source == "file":
        return "file" if row.line is UNSET else f"file, line {row.line}"
    return row.source if row.name is UNSET else f"{row.source} ({row.name})"


_WIDEST: Final = 60
_NAMED: Final = tuple(name for name, row in settings_of(Config).items() if row.names is not None)
