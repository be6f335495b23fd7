"""A real daemon whose turns get stuck before the prompt joins the history, for tests that kill it there.

`python -m tests.support.stuck_daemon PLACE`, where PLACE is `accepted` (the turn of an accepted input does not begin) or
`started` (it begins, and waits before its prompt).
"""

from __future__ import annotations

import sys
from typing import Any
from unittest.mock import patch

import anyio

from refold_protocol.session.messages import InputBlock, Source
from refold_server import boot
from refold_server.plugins.hook_table import HookContext
from refold_server.plugins.session_hooks import SessionHooks, Submitted


class StuckSeams(SessionHooks):
    """Never lets a prompt in."""

    async def prompt_submit(self, place: HookContext, content: tuple[InputBlock, ...], source: Source) -> Submitted:
        await anyio.sleep_forever()
        raise AssertionError("unreachable")


async def stuck_turn(*given: Any) -> Any:
    """A turn that does not even begin."""
    await anyio.sleep_forever()


def main(place: str) -> int:
    """Serve until killed."""
    changed = {
        "started": ("sessions.session_registry.SessionHooks", StuckSeams),
        "accepted": ("loop.instance.run_turn", stuck_turn),
    }
    name, instead = changed[place]
    with patch(f"refold_server.{name}", instead):
        return boot.serve()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
