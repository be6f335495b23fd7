"""Reading the configuration: files and other sources, which of them wins, and every fault with its key, file and line.

From the weakest: refold's defaults; the file in the platform's configuration folder, or the one that REFOLD_CONFIG or, above
it, `--config` names instead; the client's `initializationOptions`; REFOLD_LIVE_CHECK; REFOLD_STORE; `--store`; `--model`.
A workspace never configures anything. Since an editor may take its options from the workspace that it shows, they cannot
name providers and plugins: a cloned repository must neither run code nor send keys to another address.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from msgspec import Struct, convert
from msgspec.structs import replace

from refold_protocol.dialects.dialect_table import DIALECTS
from refold_protocol.errors import ConfigError
from refold_protocol.session.token_estimate import MeterRow, TokenMeterError, profile_for
from refold_server.call_config import DEFAULT_MODEL, REHEARSAL, split_model
from refold_server.compaction.compaction_decision import bounds_of
from refold_server.config import (
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
    RefusedValueError,
    RetryConfig,
    Setting,
    StoreConfig,
    TimeoutsConfig,
    ToolsConfig,
    Written,
    absolute_path,
    settings_of,
)
from refold_server.config_faults import BUILT_IN, WHOLE_FILE, Key, Origin, described, expected, meant, near

MAX_FILE_BYTES: Final = 1 << 20
"""Largest file that is read as a configuration."""

_CLIENT: Final = Origin("client", "initializationOptions")
_FILE_ONLY: Final = ("providers", "plugins")
_TOML_PLACE: Final = re.compile(r"\(at (?:line (\d+), column \d+|end of document)\)$")
_REHEARSAL_DIALECT: Final = "chat-completions"
_Built = TypeVar("_Built", bound=Struct)


class Given(Struct, frozen=True):
    """One setting as it was given: its value in refold's type, and where it comes from."""

    value: Any
    origin: Origin


Settings = dict[Key, Given]
"""Settings by key, in the order in which they were given."""


def load_config(
    path: Path | None,
    env: Mapping[str, str],
    *,
    options: Mapping[str, object] | None = None,
    store: str | None = None,
    model: str | None = None,
) -> Config:
    """Read the configuration. `path` is `--config`, `options` the settings among `initializationOptions` (a table as in
    the file), `store` is `--store`, `model` is `--model`.

    Raises ConfigError for the first fault, naming the key, what is expected, and file and line where they are known.
    """
    return build_config(read_settings(path, env, options=options, store=store, model=model), default_store_path)


def read_settings(
    path: Path | None,
    env: Mapping[str, str],
    *,
    options: Mapping[str, object] | None = None,
    store: str | None = None,
    model: str | None = None,
) -> Settings:
    """Give what is set, each by the strongest source; each is right by itself. Arguments and errors as in `load_config`."""
    given = _file_settings(path, env)
    for name in _FILE_ONLY:
        if name in (options or {}):
            raise _CLIENT.fault((name,), "can be set in the configuration file only, not by a client")
    given.update(read_table(options or {}, _CLIENT))
    if env.get("REFOLD_LIVE_CHECK"):
        origin = Origin("environment", "REFOLD_LIVE_CHECK")
        given.update(read_table({"checks": {"live": env["REFOLD_LIVE_CHECK"]}}, origin))
    variable, option = Origin("environment", "REFOLD_STORE"), Origin("option", "--store")
    for text, origin in ((env.get("REFOLD_STORE") or None, variable), (store, option)):
        if text is not None:
            place = str(Path(text).absolute()) if text.strip() else text
            given.update(read_table({"store": {"path": place}}, origin))
    if model is not None:
        given.update(read_table({"model": model}, Origin("option", "--model")))
    return given


def build_config(given: Settings, default_store: Callable[[], Path]) -> Config:
    """Build the configuration; `default_store` is asked only when no store is named. Raises ConfigError."""
    providers = _providers(given)
    config = Config(
        model=given[("model",)].value if ("model",) in given else DEFAULT_MODEL,
        store=_store(given, default_store),
        providers=providers,
        models=_models(given, {row.name: row for row in providers}),
        limits=LimitsConfig(**_fields(LimitsConfig, given, "limits")),
        retry=RetryConfig(**_fields(RetryConfig, given, "retry")),
        timeouts=TimeoutsConfig(**_fields(TimeoutsConfig, given, "timeouts")),
        tools=ToolsConfig(**_fields(ToolsConfig, given, "tools"), enabled_written=_written(given, ("tools", "enabled"))),
        plugins=_plugins(given),
        permissions=PermissionsConfig(**_fields(PermissionsConfig, given, "permissions")),
        prefix=PrefixConfig(**_fields(PrefixConfig, given, "prefix")),
        compaction=_compaction(given, ("compaction",), {row.name for row in providers}),
        checks=ChecksConfig(**_fields(ChecksConfig, given, "checks")),
        log=LogConfig(**_fields(LogConfig, given, "log")),
    )
    _check_windows(given, config)
    if not config.plugins.paths and not config.plugins.entry_points:  # else plugins may bring the tools that are named
        _check_tools(given, config.tools)
    return config


def config_path(path: Path | None, env: Mapping[str, str]) -> tuple[Path, str | None]:
    """Give the configuration file that is read where `--config` is `path`, and what names it: `--config`, `REFOLD_CONFIG`,
    or None for the platform's, which need not exist."""
    if path is not None:
        return path, "--config"
    named = env.get("REFOLD_CONFIG")
    return (Path(named), "REFOLD_CONFIG") if named else (default_config_path(), None)


_HOMELESS: Final = "this user has no home folder, so there is no place for what nothing names"


def default_config_path() -> Path:
    """Give the path of the configuration file that is read when no other is named; it need not exist. Raises ConfigError for a
    user without a home folder."""
    import platformdirs  # on use: it takes a third of the time that a whole start may

    try:
        return platformdirs.user_config_path("refold", appauthor=False) / "config.toml"
    except RuntimeError:
        raise ConfigError("--config", f"{_HOMELESS}; set REFOLD_CONFIG and REFOLD_STORE, or HOME") from None


def default_store_path() -> Path:
    """Give the folder of logs where nothing else is configured. Raises ConfigError for a user without a home folder."""
    import platformdirs

    try:
        return platformdirs.user_data_path("refold", appauthor=False)
    except RuntimeError:
        raise ConfigError("store.path", f"{_HOMELESS}; set REFOLD_STORE, store.path or HOME") from None


def default_skills_path() -> Path:
    """Give the folder of the user's own skills where nothing else is configured; it need not exist."""
    return default_config_path().parent / "skills"


def read_toml(text: str, name: str) -> Settings:
    """Read the text of the file `name`. Raises ConfigError for the first fault."""
    import tomllib  # on use: without a file nothing needs it

    try:
        table = tomllib.loads(text)
    except RecursionError:
        raise ConfigError(WHOLE_FILE, "nested too deep", file=name) from None
    except ValueError as error:  # also TOMLDecodeError
        found = _TOML_PLACE.search(str(error))
        line = None if found is None else int(found[1] or text.count("\n") + 1)
        reason = _TOML_PLACE.sub("", str(error)).strip() or "not TOML"
        reason = re.sub(r"^Cannot declare \((.*?),?\) twice$", r"the table \1 stands twice", reason)
        reason = reason.replace("Cannot overwrite a value", "a key stands twice")
        raise ConfigError(WHOLE_FILE, f"not valid TOML: {reason}", file=name, line=line) from None
    return read_table(table, Origin("file", name, text))


def read_table(table: Mapping[str, object], origin: Origin) -> Settings:
    """Read a table of settings, as TOML or JSON gives it. Raises ConfigError for the first fault."""
    return {key: Given(value, origin) for key, value in _rows(Config, (), table, origin)}


def _file_settings(path: Path | None, env: Mapping[str, str]) -> Settings:
    file, source = config_path(path, env)
    try:
        with file.open("rb") as opened:
            data = opened.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        if source is None:
            return {}
        raise ConfigError(source, "names a file that does not exist", file=str(file)) from None
    except OSError as error:
        raise ConfigError(WHOLE_FILE, f"cannot be read: {error.strerror}", file=str(file)) from None
    except ValueError:  # NUL, or half of a surrogate pair
        raise ConfigError(source or WHOLE_FILE, "names a file by a path that no file can have") from None
    return read_toml(_decoded(data, str(file)), str(file))


def _decoded(data: bytes, file: str) -> str:
    """Give the text of a file; a byte-order mark in front of it is no part of it."""
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError(WHOLE_FILE, f"is larger than {MAX_FILE_BYTES} bytes, which no configuration needs", file=file)
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise ConfigError(WHOLE_FILE, "is not a UTF-8 text file but UTF-16; save it as UTF-8", file=file)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        reason = f"is not a UTF-8 text file (byte 0x{error.object[error.start]:02x}); save it as UTF-8"
        raise ConfigError(WHOLE_FILE, reason, file=file, line=line) from None


def _rows(struct: type[Struct], prefix: Key, table: Mapping[str, object], origin: Origin) -> Iterator[tuple[Key, object]]:
    known = settings_of(struct)
    for name, value in table.items():
        key, setting = (*prefix, name), known.get(name)
        if setting is None:
            hint = near(name, tuple(known)) or "here stand: " + ", ".join(known)
            raise origin.fault(key, f"there is no such setting; {hint}")
        if setting.names is not None:
            yield from _named_rows(setting, key, _table(key, value, origin), origin)
        elif setting.table is not None:
            yield from _rows(setting.table, key, _table(key, value, origin), origin)
        else:
            yield key, _checked(setting, key, value, origin)


def _named_rows(setting: Setting, prefix: Key, table: Mapping[str, object], origin: Origin) -> Iterator[tuple[Key, object]]:
    assert setting.names is not None
    for name, value in table.items():
        key = (*prefix, name)
        if setting.table is not None and value == {}:
            raise origin.fault(key, "holds no settings")
        if re.search(setting.names.pattern, name) is None:
            raise origin.fault(key, setting.names.fault)
        if setting.table is None:
            yield key, _checked(setting, key, value, origin)
        else:
            yield from _rows(setting.table, key, _table(key, value, origin), origin)


def _table(key: Key, value: object, origin: Origin) -> Mapping[str, object]:
    if isinstance(value, dict):
        return cast("dict[str, object]", value)
    kind = "a string" if isinstance(value, str) else described(value)  # a string may be a key that got lost
    raise origin.fault(key, f"expects a table; it is {kind}")


def _checked(setting: Setting, key: Key, value: object, origin: Origin) -> object:
    hint = ""
    try:
        if setting.read is not None:
            return setting.read(value)
        _check_text(value)
        return convert(value, setting.kind, dec_hook=absolute_path)
    except RefusedValueError as refused:
        hint = str(refused)
    except ValueError:  # also msgspec's ValidationError, whose message may repeat a secret
        hint = "" if setting.secret else meant(setting, value)
    shown = "" if setting.secret or (setting.read and hint) else f"; it is {described(value)}"
    raise origin.fault(key, f"expects {expected(setting)}{shown}{f'; {hint}' if hint else ''}")


def _with_origin(given: Settings, key: Key, build: Callable[[], Any]) -> Any:
    """Call `build`; what it finds wrong is told as a fault of `key`, with file and line."""
    try:
        return build()
    except ConfigError as error:
        raise _fault(given, key, error.reason) from None


def _check_text(value: object) -> None:
    """Raise ValueError for a string, alone or in an array, with half of a surrogate pair: nobody could write it down."""
    for part in cast("list[object]", value) if isinstance(value, list) else (value,):
        if isinstance(part, str):
            part.encode()


def _store(given: Settings, default_store: Callable[[], Path]) -> StoreConfig:
    fields = _fields(StoreConfig, given, "store")
    path: Path = fields.pop("path") if "path" in fields else default_store()
    store = StoreConfig(path, **fields)
    if store.map_bytes is not None and store.max_bytes is not None and store.map_bytes > store.max_bytes:
        raise _fault(given, ("store", "map_bytes"), "expects at most store.max_bytes, where growth ends")
    return store


def _plugins(given: Settings) -> PluginsConfig:
    return PluginsConfig(
        **_fields(PluginsConfig, given, "plugins"),
        paths_written=_written(given, ("plugins", "paths")),
        entry_points_written=_written(given, ("plugins", "entry_points")),
    )


def _check_tools(given: Settings, tools: ToolsConfig) -> None:
    if tools.enabled is not None:
        from refold_server.tools.session_tools import built_in_tools  # on use: who reads a configuration needs no tools

        _with_origin(given, ("tools", "enabled"), lambda: built_in_tools(tools.enabled))


def _written(given: Settings, key: Key) -> Written:
    if key not in given:
        return Written()
    origin = given[key].origin
    return Written(origin.name, origin.line(key))


def _providers(given: Settings) -> tuple[ProviderConfig, ...]:
    plain = {"roles": "as-they-come", "call_ids": "as-given", "tool_names": "as-given"}
    rows = [ProviderConfig(REHEARSAL, _REHEARSAL_DIALECT, DIALECTS[_REHEARSAL_DIALECT].resolve_options(plain))]
    rows.extend(_provider(given, name) for name in _names(given, "providers"))
    return tuple(rows)


def _provider(given: Settings, name: str) -> ProviderConfig:
    key = ("providers", name)
    if name == REHEARSAL:
        raise _fault(given, key, "is the name of the embedded provider; take another one")
    fields = _preset(given, key) | _fields(ProviderConfig, given, *key)
    for needed in ("dialect", "base_url"):
        if needed not in fields:
            raise _fault(given, key, f"needs {needed}")
    dialect = DIALECTS.get(fields["dialect"])
    if dialect is None:
        hint = near(fields["dialect"], tuple(DIALECTS)) or "known are: " + ", ".join(DIALECTS)
        raise _fault(given, (*key, "dialect"), f"there is no such dialect; {hint}")
    settings = fields.pop("options", {})
    fields["options"] = _with_origin(given, (*key, "options"), lambda: dialect.resolve_options(settings))
    for table in ("query", "headers", "header_env", "header_command"):
        own = {row[-1]: one.value for row, one in given.items() if row[:-1] == (*key, table)}
        fields[table] = tuple((dict(fields.get(table, ())) | own).items())
    if any(row[:3] == (*key, "timeouts") for row in given):
        limits = _fields(TimeoutsConfig, given, "timeouts") | _fields(TimeoutsConfig, given, *key, "timeouts")
        fields["timeouts"] = TimeoutsConfig(**limits)
    return ProviderConfig(name=name, **fields)


def _preset(given: Settings, key: Key) -> dict[str, Any]:
    """Give the settings of the preset that a provider names, without those that its own ones exclude."""
    if (*key, "key_env") in given and (*key, "key_command") in given:
        raise _fault(given, (*key, "key_command"), "stands beside key_env; keep one of them")
    if (*key, "client_key") in given and (*key, "client_cert") not in given:
        raise _fault(given, (*key, "client_key"), "belongs to client_cert, which is not set")
    if (*key, "preset") not in given:
        return {}
    from refold_server.providers.presets import PRESETS  # on use: most configurations name none

    name: str = given[*key, "preset"].value
    if name not in PRESETS:
        hint = near(name, tuple(PRESETS)) or "known are: " + ", ".join(PRESETS)
        raise _fault(given, (*key, "preset"), f"there is no such preset; {hint}")
    fields = dict(PRESETS[name])
    options = given.get((*key, "options"))
    if options is not None:
        fields["options"] = fields.get("options", {}) | options.value
        given[*key, "options"] = Given(fields["options"], options.origin)
    if (*key, "key_command") in given:
        fields.pop("key_env", None)
    return fields


def _settings_of(given: Settings, provider: Key) -> dict[str, object]:
    """Give the settings of a provider's dialect as they were written, those of its preset included."""
    if (*provider, "preset") in given:
        return dict(_preset(given, provider).get("options", {}))
    options = given.get((*provider, "options"))
    return {} if options is None else dict(options.value)


def _models(given: Settings, providers: dict[str, ProviderConfig]) -> tuple[ModelConfig, ...]:
    return tuple(_profile(given, name, providers) for name in _names(given, "models"))


def _profile(given: Settings, name: str, providers: dict[str, ProviderConfig]) -> ModelConfig:
    key = ("models", name)
    provider = providers.get(split_model(name)[0])
    if provider is None:
        hint = near(split_model(name)[0], tuple(providers))
        raise _fault(given, key, f"no provider of that name is configured; {hint or 'add one under [providers.NAME]'}")
    fields = _fields(ModelConfig, given, *key)
    if "options" in fields:
        settings = _settings_of(given, ("providers", provider.name)) | fields["options"]
        resolve = DIALECTS[provider.dialect].resolve_options
        fields["options"] = _with_origin(given, (*key, "options"), lambda: resolve(settings))
    model = ModelConfig(name=name, **fields)
    if model.max_output is not None and model.context_window is not None and model.max_output >= model.context_window:
        raise _fault(given, (*key, "max_output"), "expects less than context_window, which holds prompt and reply")
    if any(row[:3] == (*key, "compaction") for row in given):
        model = replace(model, compaction=_compaction(given, (*key, "compaction"), set(providers)))
    extra = model.extra
    if extra is not None:
        check = DIALECTS[provider.dialect].check_extra
        _with_origin(given, (*key, "extra"), lambda: check(extra))
    return model


def _compaction(given: Settings, table: Key, providers: Container[str]) -> CompactionConfig:
    """Build the settings of compaction in a table; what is not given there is taken from those for all models."""
    fields = _fields(CompactionConfig, given, "compaction") | _fields(CompactionConfig, given, *table)
    key, model = (*table, "summary_model"), fields.get("summary_model")
    if key in given and split_model(str(model))[0] not in providers:
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
            raise _fault(given, key, f"{error.reason} (model {name})") from None


def _names(given: Settings, table: str) -> tuple[str, ...]:
    """Give the names below a table, in the order in which they were given."""
    return tuple(dict.fromkeys(key[1] for key in given if key[0] == table and len(key) > 2))


def _fields(struct: type[_Built], given: Settings, *table: str) -> dict[str, Any]:
    """Collect what was given of a struct's fields, which bear the names of the settings below `table`."""
    keys = {name: (*table, name) for name in struct.__struct_fields__}
    return {name: given[key].value for name, key in keys.items() if key in given}


def _fault(given: Settings, key: Key, reason: str) -> ConfigError:
    """Give the error about a key: at its own origin, or at that of the first setting below it."""
    below = (row.origin for other, row in given.items() if other[: len(key)] == key)
    return next(below, BUILT_IN).fault(key, reason)
