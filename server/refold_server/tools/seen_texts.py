"""Owns what a session's model has seen of files as they are: a digest each, by which a whole file is not written over blindly.

Kept in memory, for one session and one process: after a restart nothing counts as seen, and the model reads again. Must not
know the log, and holds no text.
"""

from __future__ import annotations

import hashlib
from typing import Final

from refold_server.tools.paths import Place
from refold_server.tools.text_file import BYTE_ORDER_MARK

MAX_TEXT: Final = 16 << 20
"""Bytes of the largest file that tools change."""


class SeenTexts:
    """Digests of texts by their places. Used by threads of calls that run beside each other."""

    def __init__(self) -> None:
        self._digests: dict[Place, str] = {}

    def note(self, place: Place, text: bytes) -> None:
        """Say that the model was shown (some of) this text, or made it. A byte order mark is no part of a text."""
        self._digests[place] = digest(text.removeprefix(BYTE_ORDER_MARK))

    def at(self, place: Place) -> str | None:
        """Give the digest of the text that was seen last, None where none was."""
        return self._digests.get(place)


def digest(data: bytes) -> str:
    """Give the SHA-256 of bytes, in hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()
