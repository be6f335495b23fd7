"""A workspace's file read as text, and what a session's model has seen of such texts, as a digest each.

Lines end at `\\n` only; a `\\r` before it is not part of the line. Bytes that are not UTF-8 become U+FFFD. A file with a
NUL byte near its start is binary: no editor's text holds one, and images, archives and programs do. Memory is bounded
whatever the file holds.

Digests are kept in memory, for one session and one process: after a restart nothing counts as seen, and the model reads
again, so that no whole file is written over blindly.
"""

from __future__ import annotations

import hashlib
import os
from typing import Final

from refold_server.tools.workspace_path import WorkspacePath

PIECE: Final = 1 << 16
"""Bytes that are read at a time."""

_LOOKED_AT: Final = 8192
"""Bytes at a file's start that tell whether it is binary; the figure that git uses as well."""

BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
"""The mark that some editors put in front of UTF-8; it is no part of the first line."""


def is_binary(start: bytes) -> bool:
    """Tell from a file's first bytes whether it is something else than text."""
    return b"\0" in start[:_LOOKED_AT]


def read_up_to(descriptor: int, size: int) -> bytes:
    """Read at most `size` bytes from where the descriptor stands: fewer only at the end of the file."""
    pieces: list[bytes] = []
    while size > 0:
        piece = os.read(descriptor, min(size, 1 << 20))
        if not piece:
            break
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


MAX_TEXT: Final = 16 << 20
"""Bytes of the largest file that tools change."""


class SeenTexts:
    """Digests of texts by their places. Used by threads of calls that run beside each other."""

    def __init__(self) -> None:
        self._digests: dict[WorkspacePath, str] = {}

    def note(self, place: WorkspacePath, text: bytes) -> None:
        """Say that the model was shown (some of) this text, or made it. A byte order mark is no part of a text."""
        self._digests[place] = digest(text.removeprefix(BYTE_ORDER_MARK))

    def at(self, place: WorkspacePath) -> str | None:
        """Give the digest of the text that was seen last, None where none was."""
        return self._digests.get(place)


def digest(data: bytes) -> str:
    """Give the SHA-256 of bytes, in hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()
