"""The judging of lines that are to become a log: each an event, strict JSON, in its place, and allowed where it stands.

Pure, and fed batch by batch. Both stores import through it. What may follow what is judged by the fold that judges what is
written here; a foreign event is kept whether or not this process knows its type.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NoReturn

from refold_protocol.errors import (
    DigestMismatchError,
    InvalidJsonError,
    RefoldError,
    SessionCorruptionError,
    SessionFormatUnsupportedError,
)
from refold_protocol.json_text import parse_strict
from refold_protocol.session.chain import chain_step
from refold_protocol.session.codec import check_envelope, decode_event
from refold_protocol.session.events import Event, ForeignData
from refold_protocol.session.session_state import NO_EVENTS, SessionState, fold
from refold_protocol.session.summary import summary_step
from refold_storage.accept import EMPTY_HEAD, Head
from refold_storage.interface import SessionRecord
from refold_storage.records import MAX_LINE_BYTES

MAX_TIME: Final = (1 << 53) - 1
"""The last time (epoch ms) that is taken: every reader of JSON reads it as it is. No event is behind one that came later."""


class Intake:
    """A log that is being read in. `head` is where it ends so far."""

    def __init__(self) -> None:
        self.head: Head = EMPTY_HEAD
        self._state: SessionState = NO_EVENTS

    def take(self, lines: Sequence[bytes]) -> tuple[list[Event], list[bytes]]:
        """Check the next lines; give their events and the chain's digest after each. Raises SessionCorruptionError with
        the `seq` at which the first wrong line stands."""
        events: list[Event] = []
        digests: list[bytes] = []
        tail, time, digest, summary = self.head.tail, self.head.time, self.head.digest, self.head.summary
        for line in lines:
            event = _event(line, tail + 1)
            if event.time < time:
                _refuse(tail + 1, f"its time {event.time} lies before {'1970' if tail < 0 else 'the event before it'}")
            if event.time > MAX_TIME:
                _refuse(tail + 1, f"its time {event.time} is none that a clock can have")
            self._judge(event)
            tail, time = event.seq, event.time
            digest, summary = chain_step(digest, line), summary_step(summary, event)
            events.append(event)
            digests.append(digest)
        self.head = Head(tail, time, digest, summary)
        return events, digests

    def _judge(self, event: Event) -> None:
        try:
            if isinstance(event.data, ForeignData):
                check_envelope(event.type, event.surface_op, event.sources, event.seq)
            else:
                self._state = fold(self._state, event)
        except SessionFormatUnsupportedError:
            raise
        except RefoldError as error:
            raise SessionCorruptionError(error.message, seq=event.seq) from error

    def finish(self, record: SessionRecord) -> None:
        """Compare what was read with the record that came with it. Raises SessionCorruptionError for another length or
        writers that cannot be, DigestMismatchError for another digest."""
        tail, digest = self.head.tail, self.head.digest.hex()
        if tail != record.tail or tail < 0:
            raise SessionCorruptionError(f"the lines end at event {tail}, where the record says {record.tail}", seq=tail + 1)
        if digest != record.head_digest:
            raise DigestMismatchError(f"the lines give {digest}, where the record says {record.head_digest}", seq=tail)
        before = -1
        for writer, first in record.writers:
            if not before < first <= tail:
                raise SessionCorruptionError(f"writer {writer} cannot have begun at event {first}", seq=max(first, 0))
            before = first


def _event(line: bytes, seq: int) -> Event:
    if b"\n" in line or len(line) > MAX_LINE_BYTES:
        _refuse(seq, "a line break, or more bytes than a line can have")
    try:
        event = decode_event(line)
        parse_strict(line.decode())
    except SessionCorruptionError as error:
        _refuse(seq, error.message)
    except SessionFormatUnsupportedError as error:
        raise SessionFormatUnsupportedError(f"event {seq}: {error.message}", seq=seq) from None
    except (InvalidJsonError, UnicodeDecodeError) as error:
        _refuse(seq, str(error))
    if event.seq != seq:
        _refuse(seq, f"it calls itself {event.seq}")
    return event


def _refuse(seq: int, reason: str) -> NoReturn:
    raise SessionCorruptionError(f"event {seq}: {reason}", seq=seq)
