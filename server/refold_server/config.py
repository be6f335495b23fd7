"""Owns where the configuration comes from, and in which order sources win.

From the weakest: refold's defaults; the file in the platform's configuration folder, or the one that REFOLD_CONFIG or, above
it, `--config` names instead; the client's `initializationOptions`; REFOLD_LIVE_CHECK; REFOLD_STORE; `--store`; `--model`.
A workspace never configures anything. Since an editor may take its options from the workspace that it shows, they cannot
name providers and plugins: a cloned repository must neither run code nor send keys to another address.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from refold_protocol.errors import ConfigError
from refold_server.config_build import build_config
from refold_server.config_read import WHOLE_FILE, Origin, Settings, read_table, read_toml
from refold_server.config_types import Config

__all__ = ["Config", "config_file", "default_config_path", "default_skills_path", "default_store_path", "load_config"]

_CLIENT: Final = Origin("initializationOptions")
_FILE_ONLY: Final = ("providers", "plugins")


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
    given = _file_settings(path, env)
    for name in _FILE_ONLY:
        if name in (options or {}):
            raise _CLIENT.fault((name,), "can be set in the configuration file only, not by a client")
    given.update(read_table(options or {}, _CLIENT))
    if env.get("REFOLD_LIVE_CHECK"):
        given.update(read_table({"checks": {"live": env["REFOLD_LIVE_CHECK"]}}, Origin("REFOLD_LIVE_CHECK")))
    for text, name in ((env.get("REFOLD_STORE") or None, "REFOLD_STORE"), (store, "--store")):
        if text is not None:
            place = str(Path(text).absolute()) if text.strip() else text
            given.update(read_table({"store": {"path": place}}, Origin(name)))
    if model is not None:
        given.update(read_table({"model": model}, Origin("--model")))
    return build_config(given, default_store_path)


def config_file(path: Path | None, env: Mapping[str, str]) -> tuple[Path, str | None]:
    """Give the configuration file that is read where `--config` is `path`, and what names it: `--config`, `REFOLD_CONFIG`,
    or None for the platform's, which need not exist."""
    if path is not None:
        return path, "--config"
    named = env.get("REFOLD_CONFIG")
    return (Path(named), "REFOLD_CONFIG") if named else (default_config_path(), None)


def default_config_path() -> Path:
    """Give the path of the configuration file that is read when no other is named; it need not exist."""
    import platformdirs  # on use: it takes a third of the time that a whole start may

    return platformdirs.user_config_path("refold", appauthor=False) / "config.toml"


def default_store_path() -> Path:
    """Give the folder of logs where nothing else is configured."""
    import platformdirs

    return platformdirs.user_data_path("refold", appauthor=False)


def default_skills_path() -> Path:
    """Give the folder of the user's own skills where nothing else is configured; it need not exist."""
    return default_config_path().parent / "skills"


def _file_settings(path: Path | None, env: Mapping[str, str]) -> Settings:
    file, source = config_file(path, env)
    try:
        text = file.read_bytes().decode("utf-8")
    except FileNotFoundError:
        if source is None:
            return {}
        raise ConfigError(source, "names a file that does not exist", file=str(file)) from None
    except OSError as error:
        raise ConfigError(WHOLE_FILE, f"cannot be read: {error.strerror}", file=str(file)) from None
    except ValueError as error:  # a path that holds NUL, or bytes that are not UTF-8
        raise ConfigError(WHOLE_FILE, f"is not a UTF-8 text file: {error}", file=str(file)) from None
    return read_toml(text, str(file))
