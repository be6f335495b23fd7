"""Owns the daemon's clock and the making of ids. Everything else gets time and ids as arguments or through these."""

from __future__ import annotations

import os
import time

from refold_protocol.ids import ApprovalId, InputId, SessionId


def epoch_ms() -> int:
    """Give Unix epoch milliseconds."""
    return time.time_ns() // 1_000_000


def uuid7() -> str:
    """Give a UUIDv7 (RFC 9562) in lower case: 48 bits of milliseconds, then 74 random bits, so that ids sort by age."""
    value = (epoch_ms() & 0xFFFF_FFFF_FFFF) << 80 | int.from_bytes(os.urandom(10), "big")
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def new_session_id() -> SessionId:
    """Give an id for a new session."""
    return SessionId(uuid7())


def new_approval_id() -> ApprovalId:
    """Give an id for a new approval."""
    return ApprovalId(uuid7())


def new_input_id() -> InputId:
    """Give an id for a new input."""
    return InputId(uuid7())
