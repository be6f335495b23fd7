"""Asks one question about a folder and prints the answer while it comes. The blocking client is enough for that.

    python ask.py "What does main do?" [--cwd FOLDER] [--session SESSION]

The daemon that it starts is the `refold` on the PATH, with its own configuration. Exit codes are those of `refold run`:
0 completed, 5 a limit was reached, 6 interrupted, 4 any other end; 1 for an error before there was a turn.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from refold_client import ClientError
from refold_client.blocking import BlockingClient, BlockingSubscription, spawn_blocking

EXIT_CODES = {"completed": 0, "max-tokens": 5, "max-steps": 5, "aborted": 6, "interrupted": 6}


def main() -> int:
    """Ask what the command line says."""
    parser = argparse.ArgumentParser(description="Ask one question about a folder.")
    parser.add_argument("question")
    parser.add_argument("--cwd", default=str(Path.cwd()), help="the folder that tools may look at")
    parser.add_argument("--session", help="go on in this session")
    given = parser.parse_args()
    try:
        with spawn_blocking(["refold", "serve"]) as client:
            opened = client.open_session(given.session) if given.session else client.open_session(cwd=given.cwd)
            return ask(client, opened["session"], given.question)
    except (ClientError, OSError) as error:
        say(f"ask: {error}")
        return 1


def ask(client: BlockingClient, session: str, question: str) -> int:
    """Ask in an open session; give the exit code. An interrupt (Ctrl-C) interrupts the turn and waits for its end."""
    events = client.subscribe(session, after="tail")
    turn: int = client.start_turn(session, question)["turn"]
    try:
        reason = show(events, turn)
    except KeyboardInterrupt:
        reason = client.interrupt(session, turn) or {"kind": "interrupted"}
    print(flush=True)
    if reason["kind"] != "completed":
        say(f"ask: the turn ended: {reason.get('error', {}).get('message', reason['kind'])}")
    say(f"session {session}")
    return EXIT_CODES.get(reason["kind"], 4)


def show(events: BlockingSubscription, turn: int) -> Any:
    """Print the text of a turn piece by piece, and name its tools; give the reason of its end."""
    for event in events:
        data = event["data"]
        if data.get("turn") != turn:
            continue
        if event["type"] == "assistant/chunk" and data["chunk"]["type"] == "text-delta":
            print(data["chunk"]["text"], end="", flush=True)
        elif event["type"] == "tool/call":
            say(f"[{data['name']}]")
        elif event["type"] == "turn/end":
            return data["reason"]
    raise AssertionError("a subscription has no end but an error")


def say(text: str) -> None:
    """Tell something that is not the answer."""
    print(text, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
