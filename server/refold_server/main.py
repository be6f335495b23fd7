"""Owns the entry point of the command line. Imports nothing but the way to the command that was asked for.

`refold serve` without options goes straight to the boot code, so that `initialize` is answered before anything heavy is
imported; every other call is parsed first.
"""

from __future__ import annotations

import sys


def main(argv: list[str] | None = None) -> int:
    """Run `refold` with `argv` (default: the process's arguments) and give the exit code."""
    arguments = sys.argv[1:] if argv is None else argv
    if arguments == ["serve"]:
        from refold_server.boot import serve

        return serve()
    from refold_server.cli.command_line import run

    return run(arguments)
