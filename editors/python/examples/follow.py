"""Follows a session that others write: prints each event once, as one line of JSON, and goes on where it stopped.

    python follow.py SESSION CURSOR_FILE

The cursor lies in a file, so the program can be ended (Ctrl-C) and started again; a daemon that dies is replaced. Only
events that are durable are printed: nothing that was printed can ever come to be something else. Whoever is killed between
printing and noting prints that event again.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import suppress
from pathlib import Path

import msgspec

from refold_client import (
    Client,
    ClientError,
    ConnectionEndedError,
    Cursor,
    UnclaimedMessageError,
    WriterChangedError,
    spawn,
)


def main() -> int:
    """Follow what the command line says. Ends by an interrupt, or with code 1 when there is no session or no daemon."""
    if len(sys.argv) != 3:
        print("usage: follow.py SESSION CURSOR_FILE", file=sys.stderr)
        return 2
    try:
        with suppress(KeyboardInterrupt):
            asyncio.run(follow(sys.argv[1], Path(sys.argv[2])))
    except (ClientError, OSError) as error:
        print(f"follow: {error}", file=sys.stderr)
        return 1
    return 0


async def follow(session: str, path: Path) -> None:
    """Follow with one daemon after the other. Raises what keeps a daemon from being started or from knowing the session."""
    while True:
        begun = False
        try:
            async with spawn(["refold", "serve"]) as client:
                begun = True
                await follow_with(client, session, path)
        except (ConnectionEndedError, UnclaimedMessageError) as error:  # the latter: it died inside a message
            if not begun:
                raise
            print(f"follow: {error}; starting another daemon", file=sys.stderr)


async def follow_with(client: Client, session: str, path: Path) -> None:
    """Follow until the daemon is gone. Another process that begins to write the session is no reason to stop."""
    while True:
        events = await client.subscribe(session, after=load(path, session))
        with suppress(WriterChangedError):  # what it said behind our cursor was not durable, so it was not printed
            async for event in events:
                await events.wait_durable(event["seq"])
                print(json.dumps(event, ensure_ascii=False), flush=True)
                save(path, events.cursor)


def load(path: Path, session: str) -> Cursor:
    """Give the place from which to go on: the session's start where the file does not exist."""
    try:
        cursor = msgspec.json.decode(path.read_bytes(), type=Cursor)
    except FileNotFoundError:
        return Cursor(session, -1, None)
    if cursor.session != session:
        raise OSError(f"{path} is the cursor of session {cursor.session}")
    return cursor


def save(path: Path, cursor: Cursor) -> None:
    """Note the place; the file is never there in half."""
    new = path.with_name(path.name + ".new")
    new.write_bytes(msgspec.json.encode(cursor))
    new.replace(path)


if __name__ == "__main__":
    sys.exit(main())
