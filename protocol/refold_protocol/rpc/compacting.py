"""Owns params and result of making room in a session's history. Shapes only."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from refold_protocol.ids import SessionId
from refold_protocol.rpc.params import ProgressToken


class SessionCompactParams(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel", forbid_unknown_fields=True):
    """`session/compact`: sum up the whole history for the model; refused while a turn runs. `instructions` say what the
    summary should hold besides. `work_done_token` asks for `$/progress`; cancelling either stops it."""

    session: SessionId
    instructions: Annotated[str, Meta(max_length=20_000)] | None = None
    work_done_token: ProgressToken | None = None


class SessionCompactResult(Struct, frozen=True, gc=False, rename="camel"):
    """`session/compact`: `seq` is that of the message that stands for the history now; `tokens` is what it costs and
    `shadowed_tokens` what that had cost, in tokens as the session's meter estimates them."""

    seq: int
    tokens: int
    shadowed_tokens: int
