"""Owns an export as lines: the session's record, then each event's exact line, up to the first damage where there is one.

Reads the log twice: the record says where the log ends and with which digest, so everything is checked before the first
line goes out. Knows no file and writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from refold_protocol.errors import SeqRangeError, SessionCorruptionError
from refold_protocol.session.chain import CHAIN_START, chain_step
from refold_storage.interface import Handle, Progress, SessionRecord, no_progress
from refold_storage.portable import write_record
from refold_storage.records import Damage, Record
from refold_storage.session_record import Parent


class Export(Struct, frozen=True, gc=False):
    """What can be exported: the record of the events 0 to `record.tail`, and why there are no more; None where all that was
    asked for is whole."""

    record: SessionRecord
    damage: str | None = None


def plan_export(handle: Handle, at: int | None = None, progress: Progress = no_progress) -> Export:
    """Check the committed events 0 to `at` (None: all) of a handle that `Store.examine` gave, and say what of them can be
    exported. `progress` is told of events.

    Raises SeqRangeError for an `at` that the log does not have, SessionCorruptionError when not even event 0 is whole.
    """
    tail = handle.durable
    if at is not None and not 0 <= at <= tail:
        raise SeqRangeError(f"seq {at} is not in this log, which ends at {tail}", tail=tail)
    wanted = tail if at is None else at
    walk = _Walk(handle.record.parent)
    damage = walk.run(handle, wanted, progress)
    if damage is None and at is None and walk.digest.hex() != handle.record.head_digest:
        damage = f"its record says that it ends at {tail} with the digest {handle.record.head_digest}"
    if walk.tail < 0:
        raise SessionCorruptionError(f"session {handle.id}: {damage}", session=handle.id, seq=0)
    return Export(_cut(handle.record, walk), damage)


def export_lines(handle: Handle, export: Export, progress: Progress = no_progress) -> Iterator[bytes]:
    """Iterate over the lines of an export, each with its line break. Raises SessionNotFoundError when the session was deleted
    meanwhile, SessionCorruptionError when it was damaged meanwhile."""
    yield write_record(export.record) + b"\n"
    whole = export.record.tail + 1
    done = 0
    for piece in handle.inspect():
        if isinstance(piece, Damage) or piece.first != done:
            break
        lines = piece.lines[: whole - done]
        yield b"\n".join(lines) + b"\n"
        done += len(lines)
        progress(done, whole)
        if done == whole:
            return
    raise SessionCorruptionError(f"session {handle.id}: event {done} cannot be read any more", session=handle.id, seq=done)


class _Walk:
    """How far a log is whole: its last event that is, the digest there, and that of the last event that a fork inherited."""

    def __init__(self, parent: Parent | None) -> None:
        self.tail = -1
        self.digest = CHAIN_START
        self._parent = parent

    def run(self, handle: Handle, wanted: int, progress: Progress) -> str | None:
        """Walk to event `wanted`; give what is wrong before that."""
        for piece in handle.inspect():
            if isinstance(piece, Damage):
                return f"events {piece.first} to {piece.last}: {piece.message}"
            if (wrong := self._record(piece, wanted)) is not None:
                return wrong
            progress(self.tail + 1, wanted + 1)
            if self.tail == wanted:
                return None
        return f"what lies behind event {self.tail} is missing, up to {wanted}"

    def _record(self, record: Record, wanted: int) -> str | None:
        digest = kept = self.digest
        for seq, line in enumerate(record.lines, record.first):
            digest = chain_step(digest, line)
            if seq <= wanted:
                kept = digest
            if self._parent is not None and seq == self._parent.at and digest.hex() != self._parent.digest:
                return f"event {seq} is not the one behind which the session was forked"
        if digest != record.digest:
            return f"events {record.first} to {record.last}: a line of them was changed, or their digest"
        self.tail, self.digest = min(record.last, wanted), kept
        return None


def _cut(record: SessionRecord, walk: _Walk) -> SessionRecord:
    """Give a record as of the end of a walk. A part of what a fork inherited was forked from the same parent there."""
    tail, digest = walk.tail, walk.digest.hex()
    parent = record.parent
    if parent is not None and parent.at > tail:
        parent = Parent(parent.session, tail, digest)
    writers = tuple(row for row in record.writers if row[1] <= tail)
    return replace(record, tail=tail, head_digest=digest, writers=writers, parent=parent)
