"""Owns the shape of a configuration that was read and found right. Frozen; passed as an argument to whoever needs it.

Must not know files, TOML or defaults that depend on the machine: `config.py` fills these in. Nothing here holds a secret:
keys are named by the variable or the command that gives them, except in HTTP headers, which are never logged or recorded.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TypeAlias

from msgspec import Struct

from refold_protocol.json_text import JsonText
from refold_protocol.session.density import Counting


class StoreConfig(Struct, frozen=True):
    """Where the logs are. `map_bytes` is the map's first size, `max_bytes` the end of its growth; None: the store's own."""

    path: Path
    map_bytes: int | None = None
    max_bytes: int | None = None


class ProviderConfig(Struct, frozen=True):
    """One server of models. `options` are the dialect's resolved settings; `base_url`, without a slash at its end, is None
    for the embedded rehearsal provider alone. At most one of `key_env` and `key_command` (program and arguments) is set."""

    name: str
    dialect: str
    options: JsonText
    base_url: str | None = None
    key_env: str | None = None
    key_command: tuple[str, ...] | None = None
    headers: tuple[tuple[str, str], ...] = ()


class CompactionConfig(Struct, frozen=True):
    """When and how histories are summed up. `threshold_ratio` is the share of the window at which that begins,
    `retain_tokens` what stays as it is at the end (None: a share of the window), `summary_model` who sums up (empty: the
    model that was asked last), `summary_max_tokens` the most tokens of a summary, `attempts` how often one is asked for,
    `auto` whether that happens without being asked to."""

    threshold_ratio: float = 0.8
    retain_tokens: int | None = None
    summary_model: str = ""
    summary_max_tokens: int = 8192
    attempts: int = 2
    auto: bool = True


class ModelConfig(Struct, frozen=True):
    """What is set for one model; `name` is `provider/model`. Window and output are in tokens. `compaction` is what holds for
    this model, None where nothing is set for it."""

    name: str
    context_window: int | None = None
    max_output: int | None = None
    chars_per_token: float | None = None
    density: Counting | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop: tuple[str, ...] | None = None
    reasoning_effort: str | None = None
    extra: JsonText | None = None
    compaction: CompactionConfig | None = None


class LimitsConfig(Struct, frozen=True):
    """Bounds of one turn: the largest number of steps."""

    steps: int = 50


class TimeoutsConfig(Struct, frozen=True):
    """Bounds of one provider call, in seconds: to connect, to the first byte of output, between two pieces of it, in all."""

    connect_s: float = 10.0
    first_output_s: float = 300.0
    progress_s: float = 120.0
    total_s: float = 3600.0


class Written(Struct, frozen=True):
    """Where a setting stands: a file or what else gave it, and the line where it is known. For faults that show later."""

    file: str | None = None
    line: int | None = None


class ToolsConfig(Struct, frozen=True):
    """Names of the tools that models are told of; None: all, an empty tuple: none. Those of plugins are known only when the
    plugins are loaded, so names are checked then."""

    enabled: tuple[str, ...] | None = None
    enabled_written: Written = Written()


class PluginsConfig(Struct, frozen=True):
    """Files of plugins, in the order in which they are loaded; whether those of installed packages come before them; how long
    loading each may take, in seconds."""

    paths: tuple[Path, ...] = ()
    entry_points: bool = True
    load_timeout_s: float = 60.0
    paths_written: Written = Written()
    entry_points_written: Written = Written()


Mode: TypeAlias = Literal["ask", "allow", "deny"]
"""What becomes of a call that changes something: a person is asked, it runs, it does not run."""


class PermissionsConfig(Struct, frozen=True):
    """What may run without asking, where the session says nothing else; how long a question waits, in seconds."""

    mode: Mode = "ask"
    approval_timeout_s: float = 600.0


class PrefixConfig(Struct, frozen=True):
    """Which of the built-in contributors to the session prefix are on, and the folder of the user's own skills; None: `skills`
    in the platform's configuration folder."""

    instructions: bool = True
    skills: bool = True
    baseline: bool = True
    editor: bool = True
    skills_folder: Path | None = None


class ChecksConfig(Struct, frozen=True):
    """Which requests are rebuilt from the log before they leave: each one, or those that something new may have broken."""

    live: Literal["always", "sampled"] = "sampled"


class LogConfig(Struct, frozen=True):
    """What is told on standard error: `debug`, `info`, `warning` or `error`, and what is more severe."""

    level: str = "warning"


class Config(Struct, frozen=True):
    """A whole configuration. `providers` has the embedded one first, then those of the file in its order, as `models`."""

    model: str
    store: StoreConfig
    providers: tuple[ProviderConfig, ...]
    models: tuple[ModelConfig, ...] = ()
    limits: LimitsConfig = LimitsConfig()
    timeouts: TimeoutsConfig = TimeoutsConfig()
    tools: ToolsConfig = ToolsConfig()
    plugins: PluginsConfig = PluginsConfig()
    permissions: PermissionsConfig = PermissionsConfig()
    prefix: PrefixConfig = PrefixConfig()
    compaction: CompactionConfig = CompactionConfig()
    checks: ChecksConfig = ChecksConfig()
    log: LogConfig = LogConfig()

    def provider(self, name: str) -> ProviderConfig | None:
        """Give the provider of that name, or None."""
        return next((row for row in self.providers if row.name == name), None)

    def profile(self, model: str) -> ModelConfig:
        """Give what is set for `provider/model`; a row without settings when nothing is."""
        return next((row for row in self.models if row.name == model), ModelConfig(model))

    def compaction_of(self, model: str) -> CompactionConfig:
        """Give how the histories of sessions with the model `provider/model` are compacted."""
        return self.profile(model).compaction or self.compaction
