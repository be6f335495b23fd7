"""Owns the params and the result of `prefix/compose`: what stands before a session's history, and who said it.

Shapes only. Bytes and digests are those of the messages as compact JSON, as a header holds them; tokens are estimated.
"""

from __future__ import annotations

from msgspec import Struct

from refold_protocol.ids import SessionId
from refold_protocol.session.messages import Message


class PrefixComposeParams(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """`prefix/compose`."""

    session: SessionId


class PrefixContribution(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """What one contributor of a plugin says; without messages it says nothing, and has no digest. `removed` counts messages
    of contributors behind it that it left out."""

    plugin: str
    contributor: str
    messages: tuple[Message, ...] = ()
    bytes: int = 0
    tokens: int = 0
    sha256: str | None = None
    removed: int = 0


class PrefixComposeResult(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """`prefix/compose`: `composed` tells that this is in force in the live session; else it is what an instance that began
    now would have. `contributors` stand in the order of the wire, those without a word last. `recorded` tells whether the
    last recorded request has this very prefix; absent where there is none. `failures` are sentences."""

    cwd: str
    composed: bool
    contributors: tuple[PrefixContribution, ...]
    bytes: int = 0
    tokens: int = 0
    sha256: str | None = None
    recorded: bool | None = None
    failures: tuple[str, ...] = ()
