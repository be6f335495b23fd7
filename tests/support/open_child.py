"""`python -m tests.support.open_child STORE SESSION` opens a session for writing, prints `open`, and waits to be killed."""

from __future__ import annotations

import sys

import anyio

from refold_protocol.ids import SessionId
from refold_server.config_file import load_config
from refold_server.services import Services, open_configured_store
from refold_server.sessions.session_registry import Sessions


async def main(store: str, session: str) -> None:
    config = load_config(None, {}, store=store)
    sessions = Sessions(await open_configured_store(config.store), Services(config).host, lambda work: None)
    await sessions.open(SessionId(session))
    print("open", flush=True)
    await anyio.sleep_forever()


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.argv[2])
