"""Owns what can be said of a session's prefix: the one in force, or the one that an instance that began now would have.

A composition that is only looked at is made like any other, but recorded nowhere; nor are its failures.
"""

from __future__ import annotations

from hashlib import sha256

import msgspec

from refold_protocol.ids import SessionId
from refold_protocol.rpc.composing import PrefixComposeResult, PrefixContribution
from refold_protocol.session.estimate import estimate_messages
from refold_protocol.session.header import header_step
from refold_protocol.session.messages import Message
from refold_server.loop.composition import Composition, Contribution
from refold_server.loop.seams import Seams
from refold_server.plugins.hook_runner import PluginFailure
from refold_server.sessions.reading import reading
from refold_server.sessions.registry import Sessions
from refold_server.sessions.slicing import folded
from refold_server.sessions.views import recorded


async def compose_session(sessions: Sessions, session: SessionId) -> PrefixComposeResult:
    """Tell of a session's prefix. Raises SessionError."""
    live = sessions.live(session)
    async with reading(sessions, session) as (handle, _):
        cwd = handle.record.cwd
        header = await folded(recorded(handle, handle.tail), header_step, None)
        in_force = None if live is None else live.instance.composition
        if in_force is None:
            result = await compose_anew(sessions.seams(session, cwd))
        else:
            result = _told(in_force, cwd, composed=True)
    if header is None:
        return result
    last = _sha256(header.message_prefix or ())
    return msgspec.structs.replace(result, recorded=last == result.sha256)


async def compose_anew(seams: Seams) -> PrefixComposeResult:
    """Tell of the prefix that an instance with these seams would have. `seams` must belong to nobody else."""
    failures: list[PluginFailure] = []
    seams.report = failures.append
    place = seams.place(1, 1)
    composed = await seams.session_prefix(place)
    result = _told(composed, place.cwd, composed=False)
    return msgspec.structs.replace(result, failures=tuple(failure.sentence for failure in failures))


def _told(composition: Composition, cwd: str, *, composed: bool) -> PrefixComposeResult:
    messages = composition.messages
    rows = tuple(_row(one) for one in composition.contributions)
    return PrefixComposeResult(cwd, composed, rows, _bytes(messages), estimate_messages(messages), _sha256(messages))


def _row(one: Contribution) -> PrefixContribution:
    messages = one.messages
    size, tokens, digest = _bytes(messages), estimate_messages(messages), _sha256(messages)
    return PrefixContribution(one.plugin, one.contributor, messages, size, tokens, digest, one.removed)


def _bytes(messages: tuple[Message, ...]) -> int:
    return len(msgspec.json.encode(messages)) if messages else 0


def _sha256(messages: tuple[Message, ...]) -> str | None:
    return sha256(msgspec.json.encode(messages)).hexdigest() if messages else None
