"""Owns the params and the result of `request/explain`. Shapes only: it is loaded before a connection is answered.

The command `refold cache --json` prints the same objects, one for each request of a log.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from refold_protocol.ids import SessionId
from refold_protocol.rpc.params import Counting


class StepPlace(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """A step, by the numbers of its turn and of itself."""

    turn: Counting
    step: Counting


class RequestExplainParams(Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """`request/explain`: the request of one step, compared with that of `against`, by default the request before it.
    Whichever of the two is later is compared with the earlier one."""

    session: SessionId
    turn: Counting
    step: Counting
    against: StepPlace | None = None


class ExplainedRequest(Struct, frozen=True, gc=False):
    """A request that was sent: its step, the attempt, the seq of its `request/sent`, the bytes of its body."""

    turn: int
    step: int
    attempt: int
    seq: int
    bytes: int


class ExplainedCause(Struct, frozen=True, gc=False, omit_defaults=True):
    """An event between the two requests after which the later one may begin otherwise, and what it changed as a sentence.
    `kind` is `header`, `instance` (the first header of the loop instance `instance`), `compaction` or `pruning`."""

    seq: int
    type: str
    kind: str
    sentence: str
    instance: int | None = None


class ExplainedParting(Struct, frozen=True, gc=False, omit_defaults=True):
    """Where the two bodies part: the first byte that differs, the segment that holds it, and excerpts of both around it.

    `segment` is `config`, `tools`, `system`, `prefix`, `history` or `tail`, `where` the same in words; `index` counts tools
    and messages from 0, `name` is that of a setting or a tool, `node` the seq of the event that the message came from."""

    offset: int
    segment: str
    where: str
    before: str
    after: str
    index: int | None = None
    name: str | None = None
    node: int | None = None


class RequestExplainResult(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """`request/explain`: what the later request shares with the earlier one, `against` (absent for the first of a log).

    `common` counts the bytes that both bodies begin with, absent where an encoder is not shipped or an image is missing.
    `verdict`: `first`; `kept`: all bytes of the earlier body are there but its closing brackets; `break`: they are not;
    `moved`: they are, but went to another provider; `provider`: they are, and the provider reports clearly fewer tokens as
    cached than it had read; `summary`: the same, and it was asked for a summary in between, whose request may have taken their
    place; `unknown`: they are, and the provider's figures do not tell. `reasons` are sentences, the nearest first. Tokens are
    those that the provider reported, absent where it did not.
    """

    request: ExplainedRequest
    verdict: Literal["first", "kept", "break", "moved", "summary", "provider", "unknown"]
    causes: tuple[ExplainedCause, ...]
    reasons: tuple[str, ...]
    against: ExplainedRequest | None = None
    common: int | None = None
    parting: ExplainedParting | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
