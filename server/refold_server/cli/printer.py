"""Owns the printing of one turn: what is told goes to two outlets in order, and waits there for whoever reads slowly.

Events wait in the log, not in memory: a batch is written before the next one is taken. Knows no session.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from refold_protocol.ids import SessionId
from refold_protocol.session.events import ApprovalAsked, Event
from refold_server.cli.screen import look_of
from refold_server.cli.streams import Outlet
from refold_server.cli.telling import Piece, Teller, To


class Printer:
    """Prints a turn to `out` and `aside`: for a person, or with `as_json` each event's exact line. Every method raises
    OutputLostError when `out` takes nothing more."""

    def __init__(self, out: Outlet, aside: Outlet, *, as_json: bool = False) -> None:
        self._outlets = {To.OUT: out, To.ASIDE: aside}
        self._json = as_json
        self._teller = Teller(terminal=out.terminal, look=look_of(terminal=aside.terminal))

    async def begin(self, session: SessionId) -> None:
        """Say which session it is, to a program."""
        if self._json:
            await self._outlets[To.OUT].write(json.dumps({"session": session}).encode() + b"\n")

    async def show(self, events: Iterable[Event]) -> None:
        """Show some events."""
        if self._json:
            await self._outlets[To.OUT].write(b"".join(event.line + b"\n" for event in events))
        else:
            await self._write([piece for event in events for piece in self._teller.tell(event)])

    @property
    def is_seen(self) -> bool:
        """Whether a person sees at once what stands beside the output."""
        return self._outlets[To.ASIDE].terminal

    async def show_question(self, asked: ApprovalAsked) -> None:
        """Show what a person is asked: which tool, and exactly what it would do."""
        await self._write(self._teller.question(asked))

    async def prompt(self, text: str) -> None:
        """Begin a line beside the output that a person ends."""
        await self._write(self._teller.prompt(text))

    def answered(self) -> None:
        """The person has ended the line."""
        self._teller.answered()

    async def end(self, session: SessionId) -> None:
        """Say which session it was, to a person: the last line."""
        if not self._json:
            await self._write(self._teller.line(f"session {session}"))

    async def note(self, text: str) -> None:
        """Say something beside the output."""
        await self._write(self._teller.aside(text))

    async def _write(self, pieces: Iterable[Piece]) -> None:
        """Write pieces in order, neighbours for one outlet together."""
        waiting: list[str] = []
        to = To.OUT
        for piece in pieces:
            if piece.to is not to:
                await self._flush(to, waiting)
                to, waiting = piece.to, []
            waiting.append(piece.text)
        await self._flush(to, waiting)

    async def _flush(self, to: To, waiting: list[str]) -> None:
        outlet = self._outlets[to]
        await outlet.write("".join(waiting).encode(outlet.encoding, "backslashreplace"))
