"""The command `refold config`."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from refold_protocol.errors import ConfigError
from refold_server.cli.command_line import add_store
from refold_server.cli.exit_codes import COMPLETED, PRINTING_CODES
from refold_server.cli.terminal import standard_output

SUMMARY = "show the configuration in force, and where each value comes from"
DESCRIPTION = """Check the configuration and show each setting with its value and where that comes from: built-in, the file, the
environment or an option. The first fault is told with the key, what is wrong, and the line. Keys and what else may be a secret
are never shown. Reaches no network, opens no store and loads no plugin."""
EXIT_CODES = PRINTING_CODES | {COMPLETED: "the configuration is valid"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print everything as one JSON object; of a fault its fields")
    form.add_argument("--schema", action="store_true", help="print the JSON Schema of the file instead, for editors")
    add_store(parser)


def run(options: argparse.Namespace) -> int:
    """Print the report, or the schema. Raises ConfigError for the first fault, which `--json` prints as fields as well."""
    from refold_server.cli.config_report import config_report, report_lines

    out = standard_output()
    if options.schema:
        from refold_server.config_docs import schema_text

        out.put(schema_text())
        out.flush()
        return COMPLETED
    try:
        found = config_report(None if options.config is None else Path(options.config), os.environ, options.store)
    except ConfigError as error:
        if options.json:
            out.put_json({"fault": error.details | {"reason": error.reason}})
            out.flush()
        raise
    if options.json:
        out.put_json(found)
    else:
        for line in report_lines(found, out.style):
            out.line(line)
    out.flush()
    return COMPLETED
