"""Keys of a provider, and headers that hold some: where they come from, and that they never show in a message.

A key comes from an environment variable, from a command that prints it, or from `refold login`. It goes into one HTTP header
and nowhere else: not into a body, the log, an error or a diagnostic line.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from refold_protocol.errors import ConfigError, ProviderError
from refold_server.config import ProviderConfig
from refold_server.providers.key_command import KeyCommandError, printed_key
from refold_server.providers.login_store import LoginStore
from refold_server.secret_text import SECRETS

_SECRET_WORDS: Final = ("auth", "key", "token", "secret", "cookie", "password")


class Credentials:
    """What one provider is shown. A command runs once; what it printed is kept in memory until `forget`."""

    def __init__(
        self, config: ProviderConfig, environment: Mapping[str, str] = os.environ, logins: LoginStore | None = None
    ) -> None:
        self._config = config
        self._environment = environment
        self._logins = LoginStore() if logins is None else logins
        self._printed: dict[tuple[str, ...], str] = {}
        self._last: str | None = None
        add_secrets((config,), environment)

    @property
    def hint(self) -> str:
        """Where to look when the provider refuses the key."""
        if self._config.key_env is not None:
            return f"check the key in the environment variable {self._config.key_env}"
        if self._config.key_command is not None:
            return f"check the key that {self._config.key_command[0]} prints"
        if self._last is not None:
            return f"check the key that was given to `refold login {self._config.name}`"
        return f"no key is configured: use `refold login {self._config.name}`, or set providers.{self._config.name}.key_env"

    async def key(self) -> str | None:
        """Give the key, None where none is configured. Raises ProviderError `provider.auth` when it cannot be had."""
        self._last = await self._key()
        if self._last is not None:
            SECRETS.add(self._last)
        return self._last

    async def headers(self) -> dict[str, str]:
        """Give the headers whose values come from variables and commands. Raises ProviderError `provider.auth`."""
        found = {name: self._variable(variable) for name, variable in self._config.header_env}
        for name, command in self._config.header_command:
            found[name] = await self._command(command)
        for value in found.values():
            SECRETS.add(value)
        return found

    def forget(self) -> None:
        """Ask commands again next time: the provider refused what they gave."""
        self._printed.clear()

    async def is_renewed(self) -> bool:
        """Tell whether the key that is there now is another one than the provider refused."""
        refused = self._last
        self.forget()
        try:
            return await self.key() not in (None, refused)
        except ProviderError:  # there is none any more; the refusal is what is told
            return False

    async def _key(self) -> str | None:
        if self._config.key_env is not None and (key := self._environment.get(self._config.key_env, "").strip()):
            return self._checked(key)
        if self._config.key_command is not None:
            return await self._command(self._config.key_command)
        try:
            key = await self._logins.key(self._config.name)
        except ConfigError as error:  # a file that others can read, a keyring that is locked
            raise self._missing(error.message) from None
        if key is not None:
            return self._checked(key)
        return None if self._config.key_env is None else self._variable(self._config.key_env)

    def _variable(self, name: str) -> str:
        value = self._environment.get(name, "").strip()
        if not value:
            raise self._missing(
                f"the environment variable {name} is not set, and `refold login {self._config.name}` was not used"
            )
        return self._checked(value)

    async def _command(self, command: tuple[str, ...]) -> str:
        if command not in self._printed:
            try:
                self._printed[command] = self._checked(await printed_key(command))
            except KeyCommandError as error:
                raise self._missing(str(error)) from None
        return self._printed[command]

    def _checked(self, key: str) -> str:
        if not key.isascii() or not key.isprintable():
            raise self._missing("it holds characters that an HTTP header cannot carry")
        return key

    def _missing(self, reason: str) -> ProviderError:
        return ProviderError("provider.auth", f"there is no key for the provider {self._config.name}: {reason}")


def add_secrets(providers: Iterable[ProviderConfig], environment: Mapping[str, str]) -> None:
    """Make known what of the providers' configuration may be secret, so that it shows nowhere. Runs no command."""
    for row in providers:
        variables = (row.key_env, *(variable for _, variable in row.header_env))
        for secret in (*secrets_in(row), *(environment.get(variable, "") for variable in variables if variable is not None)):
            SECRETS.add(secret)


def secrets_in(row: ProviderConfig) -> Iterator[str]:
    """Give what may be secret among a provider's own settings: values of headers and parameters, a proxy's password."""
    for name, value in (*row.headers, *row.query):
        if any(word in name.lower() for word in _SECRET_WORDS):
            yield value
    if row.proxy is not None and "@" in row.proxy:
        yield row.proxy.rpartition("@")[0].rpartition(":")[2]
