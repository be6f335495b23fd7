"""The command `refold login`.

The key is read without being shown, from a terminal or from standard input, never from the command line: arguments are seen by
every process of the machine.
"""

from __future__ import annotations

import argparse
import sys

from refold_server.cli.command_line import add_json, add_store, unicode_text
from refold_server.cli.exit_codes import COMPLETED, PRINTING_CODES
from refold_server.cli.terminal import standard_error, standard_output

SUMMARY = "keep a provider's key, or forget it"
DESCRIPTION = """Keep the key of a configured provider in the system's keyring, or, where there is none, in a file that only you
can read. The key is asked for, or read from standard input. It is used where neither key_env nor key_command gives one; running
sessions take it up as soon as the provider refuses the old one."""
EXIT_CODES = PRINTING_CODES


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("provider", metavar="PROVIDER", type=unicode_text, help="the name of the provider in the configuration")
    parser.add_argument("--forget", action="store_true", help="forget the key instead")
    add_json(parser)
    add_store(parser)


def run(options: argparse.Namespace) -> int:
    """Keep a key or forget it. Raises ConfigError for a provider that is not configured and a key that is none."""
    from refold_protocol.errors import ConfigError
    from refold_server.cli.command_context import read_config
    from refold_server.config_faults import near
    from refold_server.providers.login_store import LoginStore

    name, config, store = options.provider, read_config(options), LoginStore()
    out = standard_output()
    if options.forget:
        forgotten = store.remove(name)
        if options.json:
            out.put_json({"provider": name, "forgotten": forgotten})
        else:
            out.line(f"the key of {name} is forgotten" if forgotten else f"there was no key of {name}")
        out.flush()
        return COMPLETED
    row = config.provider(name)
    if row is None or row.base_url is None:
        known = tuple(one.name for one in config.providers if one.base_url is not None)
        hint = near(name, known) or f"add [providers.{name}] to the configuration first"
        raise ConfigError("PROVIDER", f"no provider {name!r} with an address is configured; {hint}")
    key = _read_key(name)
    if not key or not key.isascii() or not key.isprintable():
        raise ConfigError("key", "expects a line of ASCII characters; nothing was kept")
    place = store.add(name, key)
    if options.json:
        out.put_json({"provider": name, "keptIn": place})
    else:
        out.line(f"the key of {name} is kept in {place}")
    out.flush()
    if row.key_command is not None or row.key_env is not None:
        other = "key_command" if row.key_command is not None else f"the variable {row.key_env}"
        standard_error().line(f"refold: {other} goes before it, where it gives a key")
    return COMPLETED


def _read_key(provider: str) -> str:
    if not sys.stdin.isatty():
        return sys.stdin.readline(1 << 16).strip()
    from getpass import getpass

    return getpass(f"key of {provider} (it is not shown): ").strip()
