"""Owns the composition of a session prefix: what the contributors say together, and what each of them added.

A contributor gets what those behind it say by `next()` and gives a list back, as a rule its own message before theirs. What
it added is what its list has and theirs had not; so a contributor that reorders or drops the messages of others is found
out, too. Must not know the log, nor which contributors there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher

from msgspec import Struct

from refold_protocol.session.messages import Message
from refold_server.plugins.hook_runner import Report, handler_name, waterfall
from refold_server.plugins.hook_table import PrefixHandler, PrefixRequest
from refold_server.plugins.hook_values import frozen_messages
from refold_server.plugins.plugin_registry import Registered


class Contribution(Struct, frozen=True):
    """What one contributor added: those of its messages that are in the prefix, in order. `removed` counts messages of
    contributors behind it that it left out."""

    plugin: str
    contributor: str
    messages: tuple[Message, ...] = ()
    removed: int = 0


class Composition(Struct, frozen=True):
    """A prefix, and the contributions to it in the order of the wire; those that say nothing stand last."""

    messages: tuple[Message, ...]
    contributions: tuple[Contribution, ...] = ()


Handlers = Sequence[Registered[PrefixHandler]]


async def compose(handlers: Handlers, composing: PrefixRequest, report: Report) -> Composition:
    """Run the waterfall over an empty seed. Failures are reported; the prefix is what the others say."""
    given: list[tuple[Message, ...]] = [()] * (len(handlers) + 1)

    async def run(place: int) -> tuple[Message, ...]:
        if place < len(handlers):
            one = handlers[place : place + 1]
            given[place] = await waterfall(one, composing, frozen_messages, lambda: run(place + 1), report)
        return given[place]

    return attributed(handlers, given, await run(0))


def attributed(handlers: Handlers, given: Sequence[tuple[Message, ...]], messages: tuple[Message, ...]) -> Composition:
    """Say what each handler added, where `given[n]` is what came of the n-th and those behind it."""
    owners: list[int] = []
    removed = [0] * len(handlers)
    for place in range(len(handlers) - 1, -1, -1):
        before, now = given[place + 1], given[place]
        passed = _passed_on(before, now)
        older, newer = before[: len(before) - passed], now[: len(now) - passed]
        kept = [place] * len(newer)
        for match in SequenceMatcher(None, older, newer, autojunk=False).get_matching_blocks():
            kept[match.b : match.b + match.size] = owners[match.a : match.a + match.size]
        kept += owners[len(older) :]
        removed[place] = len(before) - sum(owner != place for owner in kept)
        owners = kept
    rows = [
        Contribution(
            one.plugin,
            handler_name(one.handler),
            tuple(message for message, owner in zip(messages, owners, strict=True) if owner == place),
            removed[place],
        )
        for place, one in enumerate(handlers)
    ]
    first = [owners.index(place) if place in owners else len(owners) + place for place in range(len(rows))]
    return Composition(messages, tuple(row for _, row in sorted(zip(first, rows, strict=True), key=lambda pair: pair[0])))


def _passed_on(before: tuple[Message, ...], now: tuple[Message, ...]) -> int:
    """Count the messages with which both end: a contributor that keeps to the rule puts its own before them."""
    pairs = enumerate(zip(reversed(before), reversed(now), strict=False))
    return next((count for count, (one, other) in pairs if one != other), min(len(before), len(now)))
