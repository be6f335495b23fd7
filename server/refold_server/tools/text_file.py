"""Owns reading a workspace's file as text, piece by piece: memory is bounded whatever the file holds.

Lines end at `\\n` only; a `\\r` before it is not part of the line. Bytes that are not UTF-8 become U+FFFD. A file with a
NUL byte near its start is binary: no editor's text holds one, and images, archives and programs do.
"""

from __future__ import annotations

import os
from typing import Final

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
