"""Owns the params and the result of `meter/read`: how full a model's window is. Shapes only."""

from __future__ import annotations

from msgspec import Struct

from refold_protocol.ids import SessionId


class MeterReadParams(Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """`meter/read`: what the next request would cost `model` (`provider/model`), by default the one that the session used or
    was given last."""

    session: SessionId
    model: str | None = None


class MeterAnchor(Struct, frozen=True, gc=False):
    """A call that the provider counted: its step, the seq of its reply, and the `tokens` of its prompt and output."""

    turn: int
    step: int
    seq: int
    tokens: int


class MeterNode(Struct, frozen=True, gc=False):
    """A node of the surface by its seq, and its estimated tokens; 0 for one that the model does not see."""

    seq: int
    tokens: int


class MeterReadResult(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """`meter/read`: the `tokens` of the next request's prompt, the model's whole `window`, and the share of it, `ratio`.

    With an `anchor`, tokens are what the provider counted then and, by estimate, what the surface gained or lost since; without
    one they are `header` (system text, tools, prefix) and `surface`, both estimated. `nodes` are the prices of the surface, in
    its order. `logRevision` counts the events that were consumed: the next event's seq.
    """

    model: str
    tokens: int
    window: int
    ratio: float
    header: int
    surface: int
    nodes: tuple[MeterNode, ...]
    log_revision: int
    anchor: MeterAnchor | None = None
