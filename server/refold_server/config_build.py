"""Owns what settings mean together: it builds the configuration out of settings that are right one by one.

A fault names the key that has to change, with its file and line. Must not know where settings were read.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from pathlib import Path
from typing import Any, Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from refold_protocol.dialects.registry import DIALECTS
from refold_protocol.errors import ConfigError
from refold_protocol.json_text import JsonText
from refold_protocol.session.meter_profile import MeterRow, TokenMeterError, profile_for
from refold_server.compaction.policy import bounds_of
from refold_server.config_call import DEFAULT_MODEL, REHEARSAL, split_model
from refold_server.config_checks import near
from refold_server.config_read import Origin, Settings
from refold_server.config_table import Key
from refold_server.config_types import (
    ChecksConfig,
    CompactionConfig,
    Config,
    LimitsConfig,
    LogConfig,
    ModelConfig,
    PermissionsConfig,
    PluginsConfig,
    PrefixConfig,
    ProviderConfig,
    StoreConfig,
    TimeoutsConfig,
    ToolsConfig,
    Written,
)
from refold_server.tools.session_tools import built_in_tools

_Built = TypeVar("_Built", bound=Struct)
_REHEARSAL_DIALECT: Final = "chat-completions"


def build_config(given: Settings, default_store: Callable[[], Path]) -> Config:
    """Build the configuration; `default_store` is asked only when no store is named. Raises ConfigError."""
    providers = _providers(given)
    config = Config(
        model=_model(given),
        store=_store(given, default_store),
        providers=providers,
        models=_models(given, {row.name: row for row in providers}),
        limits=LimitsConfig(**_fields(LimitsConfig, given, "limits")),
        timeouts=TimeoutsConfig(**_fields(TimeoutsConfig, given, "timeouts")),
        tools=ToolsConfig(**_fields(ToolsConfig, given, "tools"), enabled_written=_written(given, ("tools", "enabled"))),
        plugins=_plugins(given),
        permissions=PermissionsConfig(**_fields(PermissionsConfig, given, "permissions")),
        prefix=_prefix(given),
        compaction=_compaction(given, ("compaction",), {row.name for row in providers}),
        checks=ChecksConfig(**_fields(ChecksConfig, given, "checks")),
        log=LogConfig(**_fields(LogConfig, given, "log")),
    )
    _check_windows(given, config)
    if not config.plugins.paths and not config.plugins.entry_points:  # else plugins may bring the tools that are named
        with_origin(given, ("tools", "enabled"), lambda: built_in_tools(config.tools.enabled))
    return config


def with_origin(given: Settings, key: Key, build: Callable[[], Any]) -> Any:
    """Call `build`; what it finds wrong is told as a fault of `key`, with file and line."""
    try:
        return build()
    except ConfigError as error:
        raise _fault(given, key, error.message.removeprefix(f"{error.key}: ")) from None


def _model(given: Settings) -> str:
    model = _value(given, ("model",), DEFAULT_MODEL)
    with_origin(given, ("model",), lambda: split_model(model))
    return model


def _store(given: Settings, default_store: Callable[[], Path]) -> StoreConfig:
    fields = _fields(StoreConfig, given, "store")
    fields["path"] = _folder(given, ("store", "path")) if ("store", "path") in given else default_store()
    store = StoreConfig(**fields)
    if store.map_bytes is not None and store.max_bytes is not None and store.map_bytes > store.max_bytes:
        raise _fault(given, ("store", "map_bytes"), "expects at most store.max_bytes, where growth ends")
    return store


def _prefix(given: Settings) -> PrefixConfig:
    fields = _fields(PrefixConfig, given, "prefix")
    if "skills_folder" in fields:
        fields["skills_folder"] = _folder(given, ("prefix", "skills_folder"))
    return PrefixConfig(**fields)


def _plugins(given: Settings) -> PluginsConfig:
    fields = _fields(PluginsConfig, given, "plugins")
    key = ("plugins", "paths")
    if key in given:
        fields["paths"] = tuple(_path(given, key, path) for path in fields["paths"])
    switch = _written(given, ("plugins", "entry_points"))
    return PluginsConfig(**fields, paths_written=_written(given, key), entry_points_written=switch)


def _written(given: Settings, key: Key) -> Written:
    if key not in given:
        return Written()
    details = given[key].origin.fault(key, "").details
    return Written(details.get("file"), details.get("line"))


def _folder(given: Settings, key: Key) -> Path:
    """Give the folder that a setting names."""
    return _path(given, key, given[key].value)


def _path(given: Settings, key: Key, text: object) -> Path:
    try:
        path = Path(str(text)).expanduser()
    except RuntimeError:  # `~name` of a user that this machine does not have
        path = Path()
    if not path.is_absolute():
        raise _fault(given, key, "expects an absolute path, or one that begins with ~/")
    return path


def _providers(given: Settings) -> tuple[ProviderConfig, ...]:
    rows = [ProviderConfig(REHEARSAL, _REHEARSAL_DIALECT, DIALECTS[_REHEARSAL_DIALECT].resolve_options({}))]
    rows.extend(_provider(given, name) for name in _names(given, "providers"))
    return tuple(rows)


def _provider(given: Settings, name: str) -> ProviderConfig:
    key = ("providers", name)
    if name == REHEARSAL:
        raise _fault(given, key, "is the name of the embedded provider; take another one")
    fields = _fields(ProviderConfig, given, *key)
    for needed in ("dialect", "base_url"):
        if needed not in fields:
            raise _fault(given, key, f"needs {needed}")
    if "key_env" in fields and "key_command" in fields:
        raise _fault(given, (*key, "key_command"), "stands beside key_env; keep one of them")
    dialect = DIALECTS.get(fields["dialect"])
    if dialect is None:
        hint = near(fields["dialect"], tuple(DIALECTS))
        reason = f"there is no dialect {fields['dialect']!r}; {hint or 'known are: ' + ', '.join(DIALECTS)}"
        raise _fault(given, (*key, "dialect"), reason)
    settings = _tables(given, (*key, "options"))
    options = with_origin(given, (*key, "options"), lambda: dialect.resolve_options(settings))
    return ProviderConfig(name=name, options=options, headers=tuple(_tables(given, (*key, "headers")).items()), **fields)


def _models(given: Settings, providers: dict[str, ProviderConfig]) -> tuple[ModelConfig, ...]:
    return tuple(_profile(given, name, providers) for name in _names(given, "models"))


def _profile(given: Settings, name: str, providers: dict[str, ProviderConfig]) -> ModelConfig:
    key = ("models", name)
    provider = providers.get(split_model(name)[0])
    if provider is None:
        hint = near(split_model(name)[0], tuple(providers))
        raise _fault(given, key, f"no provider of that name is configured; {hint or 'add one under [providers.NAME]'}")
    model = ModelConfig(name=name, **_fields(ModelConfig, given, *key))
    if model.max_output is not None and model.context_window is not None and model.max_output >= model.context_window:
        raise _fault(given, (*key, "max_output"), "expects less than context_window, which holds prompt and reply")
    if any(row[:3] == (*key, "compaction") for row in given):
        model = replace(model, compaction=_compaction(given, (*key, "compaction"), set(providers)))
    extra = model.extra
    if extra is not None:
        check = DIALECTS[provider.dialect].check_extra
        with_origin(given, (*key, "extra"), lambda: check(JsonText(extra)))
    return model


def _compaction(given: Settings, table: Key, providers: Container[str]) -> CompactionConfig:
    """Build the settings of compaction in a table; what is not given there is taken from those for all models."""
    fields = _fields(CompactionConfig, given, "compaction") | _fields(CompactionConfig, given, *table)
    key, model = (*table, "summary_model"), fields.get("summary_model")
    if key in given and with_origin(given, key, lambda: split_model(str(model)))[0] not in providers:
        raise _fault(given, key, f"no provider of that name is configured for {model!r}; add one under [providers.NAME]")
    return CompactionConfig(**fields)


def _check_windows(given: Settings, config: Config) -> None:
    """Raise for settings of compaction that do not go with the window of a model, where that is known."""
    for name in dict.fromkeys((config.model, *(row.name for row in config.models))):
        row = config.profile(name)
        try:
            window = profile_for(name, MeterRow(row.context_window, row.chars_per_token)).window
        except TokenMeterError:  # nobody said how large it is: then nothing is compacted
            continue
        try:
            bounds_of(config.compaction_of(name), window)
        except ConfigError as error:
            keys = (("models", name, "compaction", error.key), ("compaction", error.key))
            key = next((one for one in keys if one in given), keys[1])
            raise _fault(given, key, f"{error.message.removeprefix(f'{error.key}: ')} (model {name})") from None


def _names(given: Settings, table: str) -> tuple[str, ...]:
    """Give the names below a table, in the order in which they were given."""
    return tuple(dict.fromkeys(key[1] for key in given if key[0] == table and len(key) > 2))


def _fields(struct: type[_Built], given: Settings, *table: str) -> dict[str, Any]:
    """Collect what was given of a struct's fields, which bear the names of the settings below `table`."""
    keys = {name: (*table, name) for name in struct.__struct_fields__}
    return {name: given[key].value for name, key in keys.items() if key in given}


def _tables(given: Settings, table: Key) -> dict[str, Any]:
    return {key[-1]: row.value for key, row in given.items() if key[:-1] == table}


def _value(given: Settings, key: Key, default: Any) -> Any:
    return given[key].value if key in given else default


def _fault(given: Settings, key: Key, reason: str) -> ConfigError:
    """Give the error about a key: at its own origin, or at that of the first setting below it."""
    below = (row.origin for other, row in given.items() if other[: len(key)] == key)
    return next(below, Origin("defaults")).fault(key, reason)
