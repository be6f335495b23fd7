"""The key of a provider: where it comes from, and that it never shows in a message.

A key comes from an environment variable or from a command that prints it. It goes into one HTTP header and nowhere else:
not into a body, the log, an error or a diagnostic line.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from typing import Final

import anyio

from refold_protocol.errors import ProviderError
from refold_server.config import ProviderConfig

COMMAND_SECONDS: Final = 30.0
"""How long a command may take to print a key."""

_SECRET_WORDS: Final = ("auth", "key", "token", "secret", "cookie", "password")


class Credentials:
    """The key of one provider. A command runs once; its key is kept in memory until `forget`."""

    def __init__(self, config: ProviderConfig, environment: Mapping[str, str] = os.environ) -> None:
        self._config = config
        self._environment = environment
        self._kept: str | None = None

    @property
    def hint(self) -> str:
        """Where to look when the provider refuses the key."""
        if self._config.key_env is not None:
            return f"check the key in the environment variable {self._config.key_env}"
        if self._config.key_command is not None:
            return f"check the key that {self._config.key_command[0]} prints"
        return f"no key is configured: set providers.{self._config.name}.key_env"

    async def key(self) -> str | None:
        """Give the key, None where none is configured. Raises ProviderError `provider.auth` when it cannot be had."""
        if self._config.key_env is not None:
            key = self._environment.get(self._config.key_env, "").strip()
            if not key:
                raise self._missing(f"the environment variable {self._config.key_env} is not set")
            return self._checked(key)
        if self._config.key_command is None:
            return None
        if self._kept is None:
            self._kept = self._checked(await self._printed(self._config.key_command))
        return self._kept

    def forget(self) -> None:
        """Ask the command again next time: the provider refused what it gave."""
        self._kept = None

    def scrub(self, text: str) -> str:
        """Take the key, and the values of headers that may be secret, out of a text that a provider wrote."""
        secrets = [value for name, value in self._config.headers if any(word in name.lower() for word in _SECRET_WORDS)]
        if self._config.key_env is not None:
            secrets.append(self._environment.get(self._config.key_env, "").strip())
        secrets.append(self._kept or "")
        for secret in secrets:
            for part in (secret, secret.rpartition(" ")[2]):  # `Bearer KEY` holds the key
                if len(part) > 3:
                    text = text.replace(part, "•••")
        return text

    async def _printed(self, command: tuple[str, ...]) -> str:
        program = command[0]
        try:
            with anyio.fail_after(COMMAND_SECONDS):
                done = await anyio.run_process(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        except TimeoutError:  # the process was ended with the wait for it
            raise self._missing(f"{program} did not print the key within {COMMAND_SECONDS:g} s") from None
        except OSError as error:  # the program is not there or may not run
            raise self._missing(f"{program} cannot be run: {error.strerror}") from None
        if done.returncode != 0:
            raise self._missing(f"{program} ended with exit code {done.returncode}")
        key = done.stdout.decode("utf-8", "replace").split("\n", 1)[0].strip()
        if not key:
            raise self._missing(f"{program} printed nothing on its first line")
        return key

    def _checked(self, key: str) -> str:
        if not key.isascii() or not key.isprintable():
            raise self._missing("it holds characters that an HTTP header cannot carry")
        return key

    def _missing(self, reason: str) -> ProviderError:
        return ProviderError("provider.auth", f"there is no key for the provider {self._config.name}: {reason}")
