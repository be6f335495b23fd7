"""Owns what `refold run` does with inputs that wait since an earlier instance: naming them, running one, taking them back.

Nothing that waits runs by itself: whoever sent it may have given it up, or sent it again.
"""

from __future__ import annotations

from typing import Final

from refold_protocol.errors import ConfigError
from refold_protocol.session.codec import decode_event
from refold_protocol.session.messages import text_of
from refold_protocol.session.session_state import PendingInput
from refold_server.cli.exits import COMPLETED
from refold_server.cli.people import one_line
from refold_server.cli.printer import Printer
from refold_server.sessions.session import Session
from refold_server.sessions.settings import PERMISSIONS

WAITING_CHARACTERS: Final = 60
"""How much of a waiting input is shown."""


def waiting_inputs(session: Session) -> list[PendingInput]:
    """Give what waits in the order of acceptance, without what the session has to say of its permissions: it tells that
    anew itself."""
    return [one for one in session.ledger.folds.pending if one.source != PERMISSIONS]


def oldest_waiting(session: Session) -> PendingInput:
    """Give what has waited longest. Raises ConfigError where nothing waits."""
    for one in waiting_inputs(session):
        return one
    raise ConfigError("--pending", f"no input waits in session {session.id}")


async def tell_waiting(session: Session, printer: Printer, runs: PendingInput | None) -> None:
    """Name what waits and is not `runs`, and say what can be done with it. Raises OutputLostError."""
    rest = [one for one in waiting_inputs(session) if runs is None or one.input != runs.input]
    for one in rest:
        await printer.note(f"(an earlier input waits and is not run: {_text(one)})")
    if rest:
        what = f"refold run --session {session.id}"
        await printer.note(f"({what} --pending runs the oldest, {what} --withdraw takes back all that waits)")


async def withdraw_waiting(session: Session, printer: Printer) -> int:
    """Take back all that waits, tell of it, and give the exit code. Raises LogError, OutputLostError."""
    handle, rest = session.ledger.handle, waiting_inputs(session)
    await printer.begin(session.id)
    for one in rest:
        before = handle.tail
        await session.withdraw(one.input)
        await printer.show(decode_event(line) for line in handle.lines(before + 1))
        await printer.note(f"(taken back: {_text(one)})")
    if not rest:
        await printer.note("(no input waits)")
    await printer.end(session.id)
    return COMPLETED


def _text(given: PendingInput) -> str:
    return one_line(text_of(given.content), WAITING_CHARACTERS)
