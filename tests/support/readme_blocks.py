"""Taking the marked blocks out of a Markdown file, and running a console block as its reader would.

A block is marked by a second word behind its language: `console run` is run, `json check` must be strict JSON. In a console
block a line that begins with `$ ` is a command and what follows is its whole output; a line `…` stands for any lines, and a
`…` within a line for any text. Blocks without a mark are for the eye only.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple


class Block(NamedTuple):
    """A marked block: `line` is where its first line stands in the file, counted from 1."""

    language: str
    mark: str
    text: str
    line: int


class Command(NamedTuple):
    """A command line and the output that the document promises."""

    line: str
    output: str


def marked_blocks(markdown: str) -> list[Block]:
    """Give the marked blocks of a document, in order."""
    found: list[Block] = []
    for fence in re.finditer(r"^```(\w+) (\w+)\n(.*?)^```$", markdown, re.MULTILINE | re.DOTALL):
        language, mark, text = fence.groups()
        found.append(Block(language, mark, text, markdown.count("\n", 0, fence.start(3)) + 1))
    return found


def commands(console: str) -> list[Command]:
    """Split a console block into its commands, in order. Raises ValueError for a block that begins with output."""
    parts = re.split(r"^\$ ", console, flags=re.MULTILINE)
    if parts[0].strip():
        raise ValueError(f"output without a command: {parts[0]!r}")
    return [Command(*part.partition("\n")[::2]) for part in parts[1:]]


def output_matches(promised: str, real: str) -> bool:
    """Tell whether output is as promised, `…` standing for what differs from run to run."""
    lines = promised.strip("\n").split("\n")
    pattern = "\n".join("(?s:.*)" if line == "…" else re.escape(line).replace("…", ".*") for line in lines)
    return re.fullmatch(pattern, real.strip("\n")) is not None


def run_command(line: str, *, cwd: Path, store: Path) -> str:
    """Run one command line with this interpreter's programs first on the path and a store of its own; give its output.

    Raises CalledProcessError when it fails and TimeoutExpired after 100 seconds.
    """
    outer_make = {"MAKEFLAGS", "MAKELEVEL", "MFLAGS", "MAKE_TERMOUT", "MAKE_TERMERR"}
    env = {name: value for name, value in os.environ.items() if name not in outer_make}
    env |= {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{env['PATH']}", "REFOLD_STORE": str(store), "NO_COLOR": "1"}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", line],
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=100,
        check=True,
    )
    return done.stdout.decode()
