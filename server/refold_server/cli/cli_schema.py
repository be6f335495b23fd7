"""The command `refold schema`."""

from __future__ import annotations

import argparse

from refold_server.cli.exit_codes import COMPLETED, PRINTING_CODES
from refold_server.cli.terminal import standard_output

SUMMARY = "print the protocol's methods and types, for programs in other languages"
DESCRIPTION = """Print the methods of the native protocol with the types of their params and results: as one JSON object of
`methods` and `types` in JSON Schema, or as TypeScript declarations, which have the types of events as well."""
EXIT_CODES = PRINTING_CODES


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("--typescript", action="store_true", help="as TypeScript declarations (default: JSON Schema)")


def run(options: argparse.Namespace) -> int:
    """Print the table of methods."""
    from refold_server.rpc.method_table import METHODS

    out = standard_output()
    if options.typescript:
        from refold_server.rpc.wire_schema import declarations

        out.put_bytes(declarations(METHODS).encode())
    else:
        import msgspec

        from refold_server.rpc.wire_schema import schema_of

        out.put_bytes(msgspec.json.format(msgspec.json.encode(schema_of(METHODS), order="sorted"), indent=1) + b"\n")
    out.flush()
    return COMPLETED
