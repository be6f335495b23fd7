"""A headless client of refold: it starts a daemon, opens sessions, prompts, follows events. It keeps no truth of its own.

async with spawn(["refold", "serve"]) as client:
    session = (await client.open_session(cwd="/path/to/work"))["session"]
    events = await client.subscribe(session)
    started = await client.start_turn(session, "What does main do?")
    async for event in events:
        if event["type"] == "turn/end" and event["data"]["turn"] == started["turn"]:
            break
"""

from refold_client.client import Client, spawn
from refold_client.client_errors import (
    ClientError,
    ConnectionEndedError,
    Cursor,
    GapError,
    RpcError,
    SubscriptionEndedError,
    UnclaimedMessageError,
    WriterChangedError,
)
from refold_client.client_questions import Approval
from refold_client.event_stream import Subscription

__all__ = [
    "Approval",
    "Client",
    "ClientError",
    "ConnectionEndedError",
    "Cursor",
    "GapError",
    "RpcError",
    "Subscription",
    "SubscriptionEndedError",
    "UnclaimedMessageError",
    "WriterChangedError",
    "spawn",
]
