"""Owns the digest chain: one SHA-256 per event, over the one before and the event's exact line.

d(−1) = SHA-256("refold log 0") for every session; d(n) = SHA-256(d(n−1) ‖ line). It runs per event, so how lines are
grouped in a store never matters, and a fork goes on from its parent's digest. It shows accidents and truncation, not an
attacker who rewrites everything.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import Final

CHAIN_START: Final = sha256(b"refold log 0").digest()
"""The digest before the first event: 32 bytes."""


def chain_step(digest: bytes, line: bytes) -> bytes:
    """Give d(n) from d(n−1) (32 bytes) and the n-th line (no line break): 32 bytes."""
    return sha256(digest + line).digest()


def chain(lines: Iterable[bytes], start: bytes = CHAIN_START) -> bytes:
    """Give the digest after all `lines`, going on from `start`."""
    for line in lines:
        start = chain_step(start, line)
    return start
