"""The command `refold models`.

Reaches the network, but opens no store. Names come from servers: those that are printed for a shell hold nothing that it would
expand.
"""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING, Final

from refold_server.cli.command_line import add_json, add_store, unicode_text
from refold_server.cli.exit_codes import COMPLETED, MEANINGS, PRINTING_CODES
from refold_server.cli.formatting import printable
from refold_server.cli.terminal import standard_error, standard_output

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from refold_protocol.errors import ProviderError
    from refold_server.config import Config, ProviderConfig
    from refold_server.providers.model_discovery import FoundModel

SUMMARY = "list the models that the configured servers have"
DESCRIPTION = """Ask each configured provider for its models (GET /models) and list them by the names that --model takes, with
the size of the window where the server tells it. A server that does not answer is told of, and the others are listed."""
EXIT_CODES = PRINTING_CODES | {code: MEANINGS[code] for code in (3,)} | {4: "a server could not be asked"}

SECONDS: Final = 10.0
"""How long a server may take."""

_PLAIN: Final = re.compile(r"[A-Za-z0-9._:/@+-]+")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "provider", metavar="PROVIDER", nargs="*", type=unicode_text, help="names of providers (default: all of them)"
    )
    parser.add_argument("--names", action="store_true", help="print names alone, for a shell to complete")
    add_json(parser)
    add_store(parser)


async def run(options: argparse.Namespace) -> int:
    """List the models; the exit code is that of the last server that could not be asked."""
    from refold_server.cli.command_context import read_config
    from refold_server.cli.exit_codes import exit_code_of_error

    config = read_config(options)
    rows, faults = await _ask_all(_chosen(config, options.provider))
    out, err = standard_output(), standard_error()
    if options.json:
        out.put_json({"models": [{"model": name, "contextWindow": model.context_window} for name, model in rows]})
    elif options.names:
        for name, _ in rows:
            if _PLAIN.fullmatch(name):
                out.line(name)
    else:
        for line in _lines(rows):
            out.line(line)
    out.flush()
    code = COMPLETED
    for provider, error in faults:
        err.line(f"{err.style.red(f'refold: {error.error_kind}')}: {provider}: {printable(error.message)}")
        code = exit_code_of_error(error)
    return code


def _chosen(config: Config, names: Sequence[str]) -> list[ProviderConfig]:
    """Give the providers that have an address, or those that were named. Raises ConfigError for one that is not there."""
    from refold_protocol.errors import ConfigError
    from refold_server.config_faults import near

    known = {row.name: row for row in config.providers if row.base_url is not None}
    for name in names:
        if name not in known:
            hint = near(name, tuple(known)) or "configured are: " + (", ".join(known) or "none")
            raise ConfigError("PROVIDER", f"no provider {name!r} with an address is configured; {hint}")
    return [known[name] for name in dict.fromkeys(names)] if names else list(known.values())


async def _ask_all(
    providers: Iterable[ProviderConfig],
) -> tuple[list[tuple[str, FoundModel]], list[tuple[str, ProviderError]]]:
    """Ask servers beside each other; give the models in the order of the configuration, and what went wrong."""
    import anyio

    from refold_protocol.errors import ProviderError
    from refold_server.config import TimeoutsConfig
    from refold_server.providers.http_provider import HttpProvider
    from refold_server.providers.model_discovery import PATH, read_models
    from refold_server.providers.provider_registry import close_providers, open_provider

    answers: dict[str, tuple[FoundModel, ...] | ProviderError] = {}

    async def ask(row: ProviderConfig) -> None:
        opened = open_provider(row, TimeoutsConfig())
        assert isinstance(opened, HttpProvider)  # it has an address
        try:
            answers[row.name] = read_models(await opened.get(PATH, SECONDS))
        except ProviderError as error:
            answers[row.name] = error

    asked = list(providers)
    try:
        async with anyio.create_task_group() as tasks:
            for row in asked:
                tasks.start_soon(ask, row)
    finally:
        await close_providers()
    models = [
        (f"{row.name}/{model.name}", model)
        for row in asked
        if not isinstance(found := answers[row.name], ProviderError)
        for model in found
    ]
    return models, [(row.name, error) for row in asked if isinstance(error := answers[row.name], ProviderError)]


def _lines(rows: Sequence[tuple[str, FoundModel]]) -> list[str]:
    from refold_server.cli.text_tables import aligned

    cells = [(printable(name), "" if model.context_window is None else f"{model.context_window:,}") for name, model in rows]
    return [line.rstrip() for line in aligned([("model", "window"), *cells])] if cells else []
