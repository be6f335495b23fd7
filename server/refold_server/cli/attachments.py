"""What goes with a prompt on the command line: standard input, files that are named, and files that the prompt mentions.

Standard input is taken when it is this command's own: a pipe or a file that the parent process does not read too. In a shell
loop it is the loop's, and stays. What is taken stands behind the prompt, under its name.
"""

from __future__ import annotations

import os
import re
import select
import stat
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from refold_protocol.errors import ConfigError
from refold_server.cli.formatting import printable

MAX_BYTES: Final = 4 << 20
"""Bytes of one attachment."""

SILENT_SECONDS: Final = 1.0
"""So long nothing need come on standard input where no person can be told that it is waited for."""

_MENTION: Final = re.compile(r"(?<!\S)@([^\s@]+)")


class Attachment(Struct, frozen=True):
    """A text beside the prompt, and what it is called."""

    name: str
    text: str

    @property
    def told(self) -> str:
        """What a person is told of it."""
        return f"{printable(self.name)}, {len(self.text.encode()):,} bytes"


def with_attachments(prompt: str, attachments: Sequence[Attachment]) -> str:
    """Give the prompt with what goes with it, each under its name."""
    parts = [prompt, *(f"{one.name}:\n\n{one.text}" for one in attachments)]
    return "\n\n".join(parts)


def named_files(paths: Sequence[str]) -> list[Attachment]:
    """Read the files that `--file` names. Raises ConfigError for one that cannot be read or is no text."""
    return [_read(path, "--file") for path in paths]


def mentioned_files(prompt: str) -> list[Attachment]:
    """Read the files that a prompt mentions as `@path`; a word that names no file stays a word. Raises ConfigError for a file
    that cannot be read or is no text."""
    names = dict.fromkeys(match[1].rstrip(".,;:!?)") for match in _MENTION.finditer(prompt))
    return [_read(name, f"@{name}") for name in names if name and os.path.isfile(name)]  # noqa: PTH113 - any text may follow


def piped_input(wait_told: bool) -> Attachment | None:
    """Give what was piped into this command; None where nothing was, or where standard input is the parent's too. Waits for it,
    SILENT_SECONDS at most unless a person was told (`wait_told`). Raises ConfigError for what is no text, or too much."""
    file = _own_input()
    if file is None:
        return None
    if not wait_told and not select.select([file], [], [], SILENT_SECONDS)[0]:
        return None
    data = bytearray()
    while len(data) <= MAX_BYTES and (piece := os.read(file, 1 << 16)):
        data += piece
    return Attachment("Standard input", _text(bytes(data), "standard input")) if data else None


def _own_input() -> int | None:
    """Give standard input where it is a pipe or a file that the parent process does not have as its own."""
    try:
        file = -1 if sys.stdin is None else sys.stdin.fileno()
        mine = os.fstat(file)
        if not (stat.S_ISFIFO(mine.st_mode) or stat.S_ISREG(mine.st_mode)):
            return None
        theirs = Path(f"/proc/{os.getppid()}/fd/0").stat()
    except OSError:  # closed; or a system without /proc, or a parent of somebody else's: then `-` reads it
        return None
    return None if (mine.st_dev, mine.st_ino) == (theirs.st_dev, theirs.st_ino) else file


def _read(path: str, key: str) -> Attachment:
    try:
        with Path(path).open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(key, f"{path} cannot be read: {error.strerror or error}") from None
    return Attachment(path, _text(data, key))


def _text(data: bytes, key: str) -> str:
    if len(data) > MAX_BYTES:
        raise ConfigError(key, f"is longer than {MAX_BYTES >> 20} MiB; name the file in the prompt, and it is read in parts")
    try:
        return data.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise ConfigError(key, f"is not UTF-8 text: {error.reason} at byte {error.start}") from None
