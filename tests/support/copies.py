"""Copies of stored sessions in which something is different: logs that another release, a crash or a bug would leave.

A copy goes through the same store as its original, so it is whole in itself; what does not fit is only what was changed.
"""

from __future__ import annotations

from collections.abc import Callable

import anyio
import msgspec

from refold_protocol.ids import SessionId
from refold_protocol.session.events import Draft, EncoderId, Event, EventData, RequestSent
from refold_server.clock import epoch_ms, uuid7
from refold_storage.interface import NewSession
from refold_storage.lmdb_store import open_store
from tests.support.daemons import Place

Change = Callable[[EventData], EventData]


def copied(place: Place, session: str, change: Change, *, count: int | None = None) -> str:
    """Copy the first `count` events of a session (default: all), each with its data changed; give the copy's id."""
    name = uuid7()

    async def copy() -> None:
        store = await open_store(place.store, new_uuid=uuid7, clock=epoch_ms)
        original = await store.open(SessionId(session), "read")
        events = list(original.read())[:count]
        handle = await store.create(NewSession(SessionId(name), original.record.cwd, original.record.created_at))
        handle.append([_draft(event, change) for event in events])
        await store.close()

    anyio.run(copy)
    return name


def unchanged(data: EventData) -> EventData:
    """Change nothing."""
    return data


def of_a_later_encoder(data: EventData) -> EventData:
    """Have a request be sent by an encoder that this release does not have, with other bytes."""
    if not isinstance(data, RequestSent):
        return data
    return msgspec.structs.replace(data, encoder=EncoderId(data.encoder.name, 1_000), sha256="0" * 64)


def with_another_body(data: EventData) -> EventData:
    """Have a request say that other bytes were sent."""
    return msgspec.structs.replace(data, sha256="0" * 64) if isinstance(data, RequestSent) else data


def with_another_request(data: EventData) -> EventData:
    """Have a request say that something else was asked."""
    return msgspec.structs.replace(data, request_sha256="0" * 64) if isinstance(data, RequestSent) else data


def _draft(event: Event, change: Change) -> Draft:
    return Draft(change(event.data), event.surface_op, event.sources, event.ignorable, time=event.time)
