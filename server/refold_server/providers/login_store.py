"""Keys that `refold login` was given: in the system's keyring, else in a file that only its owner can read.

The file says for each provider where its key is, so that a start without logins asks no keyring: its library, and the
service that it talks to, take long. Imported on use, and only where a login says so.
"""

from __future__ import annotations

import json
import os
import stat
from importlib import import_module
from pathlib import Path
from typing import Any, Final, cast

import anyio.to_thread

from refold_protocol.errors import ConfigError

FILE: Final = "logins.json"
"""The file beside the configuration."""

SERVICE: Final = "refold"
"""The name under which keys lie in a keyring."""


class LoginStore:
    """The logins of a user. `path` is for tests; by default the file lies beside the platform's configuration."""

    def __init__(self, path: Path | None = None) -> None:
        self._given = path

    @property
    def path(self) -> Path:
        """The file; it need not exist."""
        if self._given is None:
            import platformdirs  # on use: it takes a third of the time that a whole start may

            try:
                self._given = platformdirs.user_config_path("refold", appauthor=False) / FILE
            except RuntimeError:
                raise ConfigError("HOME", "this user has no home folder, so no login can be kept; set HOME") from None
        return self._given

    async def key(self, provider: str) -> str | None:
        """Give the key of a provider, None without a login. Raises ConfigError for a file that cannot be used."""
        rows = self._rows()
        if provider not in rows:
            return None
        return rows[provider] or await anyio.to_thread.run_sync(_from_keyring, provider)

    def providers(self) -> tuple[str, ...]:
        """Give the providers that have a login. Raises ConfigError."""
        return tuple(self._rows())

    def add(self, provider: str, key: str) -> str:
        """Keep a key and say where: the keyring, or the file. Raises ConfigError when it cannot be kept."""
        rows = self._rows()
        in_keyring = _into_keyring(provider, key)
        rows[provider] = None if in_keyring else key
        self._write(rows)
        return "the system's keyring" if in_keyring else str(self.path)

    def remove(self, provider: str) -> bool:
        """Forget a key; tell whether there was one. Raises ConfigError."""
        rows = self._rows()
        if provider not in rows:
            return False
        if rows.pop(provider) is None:
            _out_of_keyring(provider)
        self._write(rows)
        return True

    def _rows(self) -> dict[str, str | None]:
        """Read the file: a key for each provider, None where a keyring has it."""
        try:
            with self.path.open("rb") as file:
                mode = os.fstat(file.fileno()).st_mode
                rows: object = json.loads(file.read(1 << 20))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "it is no JSON"
            raise self._fault(f"cannot be read: {reason}") from None
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise self._fault("can be read by others; chmod 600 it, and let the provider give you new keys")
        if not isinstance(rows, dict):
            raise self._fault("holds no table of logins")
        found = cast("dict[str, object]", rows)
        return {name: key if isinstance(key, str) else None for name, key in found.items()}

    def _write(self, rows: dict[str, str | None]) -> None:
        beside = self.path.with_name(f"{FILE}.{os.getpid()}")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:  # noqa: PTH123 - its mode
                json.dump(rows, file, indent=1)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(self.path)
        except OSError as error:
            raise self._fault(f"cannot be written: {error.strerror}") from None

    def _fault(self, reason: str) -> ConfigError:
        return ConfigError("logins", reason, file=str(self.path))


def known_logins() -> tuple[str, ...]:
    """Give the providers whose key this user keeps; none where the file cannot be used, which `refold doctor` tells."""
    try:
        return LoginStore().providers()
    except ConfigError:  # whoever needs the key is told why it cannot be had
        return ()


def _keyring() -> Any:
    """Give the keyring library, None where it is not installed or finds no keyring on this system."""
    try:
        keyring: Any = import_module("keyring")
        return keyring if keyring.get_keyring().priority >= 1 else None
    except Exception:  # noqa: BLE001 - whatever stands in its way: then the file is there
        return None


def _into_keyring(provider: str, key: str) -> bool:
    keyring = _keyring()
    if keyring is None:
        return False
    try:
        keyring.set_password(SERVICE, provider, key)
    except Exception:  # noqa: BLE001 - locked, denied, gone: the file takes the key, and the user is told where it lies
        return False
    return True


def _from_keyring(provider: str) -> str | None:
    keyring = _keyring()
    try:
        return None if keyring is None else cast("str | None", keyring.get_password(SERVICE, provider))
    except Exception as error:  # noqa: BLE001 - any of its backends' own
        raise ConfigError("logins", f"the system's keyring gives no key: {type(error).__name__}") from None


def _out_of_keyring(provider: str) -> None:
    keyring = _keyring()
    try:
        if keyring is not None:
            keyring.delete_password(SERVICE, provider)
    except Exception as error:  # noqa: BLE001 - any of its backends' own
        raise ConfigError("logins", f"the system's keyring does not forget the key: {type(error).__name__}") from None
