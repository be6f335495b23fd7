"""Secrets that must not show: every key that this process knows, taken out of texts that somebody else wrote.

A provider's error, a plugin's exception or a log line may repeat a key, whole or cut anywhere. So pieces are looked for:
eight characters of a secret that stand together go, wherever they stand. A secret below eight characters goes as a whole.
Knows no provider and no configuration; whoever reads a secret adds it.
"""

from __future__ import annotations

import logging
from itertools import groupby
from typing import Final
from urllib.parse import quote

PIECE: Final = 8
"""So many characters of a secret in a row are one too many."""

SHORTEST: Final = 4
"""A shorter secret is none: it stands in every other word."""

MARK: Final = "•••"
"""What stands where a secret stood."""


class Secrets:
    """The secrets of a process. Grows only: a key that was replaced may still be in force somewhere."""

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._pieces: set[str] = set()

    def add(self, secret: str) -> None:
        """Take a secret in; in `Bearer KEY` it is the last word. Idempotent."""
        secret = secret.strip().rpartition(" ")[2]
        if len(secret) < SHORTEST or secret in self._known:
            return
        self._known.add(secret)
        for form in {secret, quote(secret, safe="")}:
            width = min(PIECE, len(form))
            self._pieces.update(form[at : at + width] for at in range(len(form) - width + 1))

    def scrub(self, text: str) -> str:
        """Give `text` without any piece of a secret."""
        if not any(piece in text for piece in self._pieces):
            return text
        hidden = bytearray(len(text))
        for width in {len(piece) for piece in self._pieces}:
            for at in range(len(text) - width + 1):
                if text[at : at + width] in self._pieces:
                    hidden[at : at + width] = b"\1" * width
        runs = groupby(range(len(text)), hidden.__getitem__)
        return "".join(MARK if secret else "".join(text[at] for at in run) for secret, run in runs)


SECRETS: Final = Secrets()
"""Those of this process."""


class ScrubbingFormatter(logging.Formatter):
    """Formats log records, tracebacks included, without secrets."""

    def format(self, record: logging.LogRecord) -> str:
        """Give the line."""
        return SECRETS.scrub(super().format(record))
