"""First line of an export: the session's record as a line of JSON, written and read.

    {"type":"refold/session","format":0,"id":…,"cwd":…,"createdAt":…,"tail":…,"headDigest":…,"writers":[[…,0]]}

with `parent` where the session is a fork and `archived` where it is. Behind it stands each event's exact line. Whatever is
a cache, as the title, is left out. A reader takes what one writer writes and nothing else: what it does not know, it refuses.

Export as lines: the session's record, then each event's exact line, up to the first damage where there is one.

Reads the log twice: the record says where the log ends and with which digest, so everything is checked before the first
line goes out. Knows no file and writes nothing.

Reading of an export from its bytes: lines, each with its number, so that what is wrong with a file is named by its line.

The lines go to `Store.import_session` as they are; an export that was changed on its way is refused, never mended: a byte
order mark, line ends of another system and a missing end are changes too. Knows no file; reads each byte once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath
from typing import Annotated, Any, Final, NoReturn, cast

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from refold_protocol.errors import (
    DigestMismatchError,
    InvalidJsonError,
    SeqRangeError,
    SessionCorruptionError,
    SessionFormatUnsupportedError,
)
from refold_protocol.ids import SessionId, WriterId
from refold_protocol.json_text import parse_strict
from refold_protocol.session.codec import CHAIN_START, chain_step
from refold_protocol.session.events import FORMAT_VERSION
from refold_protocol.session.session_totals import EMPTY_SUMMARY
from refold_storage.interface import Handle, Parent, Progress, SessionRecord, Store, no_progress
from refold_storage.records import MAX_FIRST_LINE_BYTES, MAX_LINE_BYTES, Damage, Record
from refold_storage.transfer import MAX_TIME

TYPE: Final = "refold/session"
"""What the first line calls itself, so that it is told from an event's."""


def write_record(record: SessionRecord) -> bytes:
    """Give the first line, without a line break."""
    parent = None if record.parent is None else _Parent(*msgspec.structs.astuple(record.parent))
    line = _Line(
        TYPE,
        FORMAT_VERSION,
        record.id,
        record.cwd,
        record.created_at,
        record.tail,
        record.head_digest,
        record.writers,
        parent,
        record.archived,
    )
    return msgspec.json.encode(line)


def read_record(line: bytes) -> SessionRecord:
    """Read the first line; the record's summary is empty. Raises SessionCorruptionError for one that cannot be,
    SessionFormatUnsupportedError for one of another release, which says who is older."""
    members = _members(line)
    if members.get("type") != TYPE:
        _refuse(f"this is no export of a session: it begins with no line of the type {TYPE}")
    _check_format(members)
    try:
        found = _DECODER.decode(line)
    except msgspec.ValidationError as error:
        _refuse(str(error))
    parent = None if found.parent is None else Parent(*msgspec.structs.astuple(found.parent))
    if parent is not None and parent.at > found.tail:
        _refuse(f"it was forked at {parent.at} and ends at {found.tail}")
    if not found.id.isprintable():
        _refuse(f"the id {found.id!r} holds what cannot be shown")
    if not PurePosixPath(found.cwd).is_absolute() or "\0" in found.cwd:
        _refuse(f"cwd {found.cwd!r} is no absolute path")
    return SessionRecord(
        found.id,
        found.cwd,
        found.created_at,
        found.tail,
        found.head_digest,
        found.writers,
        EMPTY_SUMMARY,
        parent,
        found.archived,
    )


_Seq = Annotated[int, Meta(ge=0, lt=1 << 62)]
_Time = Annotated[int, Meta(ge=0, le=MAX_TIME)]
_Digest = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
_Id = Annotated[SessionId, Meta(min_length=1, max_length=200)]


class _Parent(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    session: _Id
    at: _Seq
    digest: _Digest


class _Line(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel", forbid_unknown_fields=True):
    type: str
    format: int
    id: _Id
    cwd: str
    created_at: _Time
    tail: _Seq
    head_digest: _Digest
    writers: tuple[tuple[WriterId, _Seq], ...]
    parent: _Parent | None = None
    archived: bool = False


def _members(line: bytes) -> dict[str, Any]:
    try:
        value = parse_strict(line.decode())
    except UnicodeDecodeError as error:
        _refuse(f"not UTF-8 at byte {error.start}")
    except InvalidJsonError as error:
        _refuse(f"not JSON: {error.message}")
    if not isinstance(value, dict):
        _refuse("not a JSON object")
    return cast("dict[str, Any]", value)


def _check_format(members: dict[str, Any]) -> None:
    version = members.get("format")
    if not isinstance(version, int) or isinstance(version, bool):
        _refuse("it names no format version")
    if version != FORMAT_VERSION:
        age = "a later" if version > FORMAT_VERSION else "an earlier"
        raise SessionFormatUnsupportedError(
            f"line 1: format version {version}, where this release of refold reads {FORMAT_VERSION}: the file comes from "
            f"{age} release",
            line=1,
        )
    if unknown := members.keys() - _MEMBERS:
        raise SessionFormatUnsupportedError(
            f"line 1: this release of refold does not know {', '.join(sorted(unknown))}: the file comes from a later release",
            line=1,
        )


def _refuse(reason: str) -> NoReturn:
    raise SessionCorruptionError(f"line 1: {reason}", line=1)


_DECODER: Final = msgspec.json.Decoder(_Line)
_MEMBERS: Final = frozenset(_Line.__struct_encode_fields__)


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


class Incoming:
    """An export whose first line was read: `record` is what that says. `land` reads the rest, once."""

    def __init__(self, blocks: Iterable[bytes]) -> None:
        """Read the first line of what `blocks` are pieces of. Raises SessionCorruptionError, SessionFormatUnsupportedError."""
        self._lines = _numbered(blocks)
        self._given = 0
        self._stopped: SessionCorruptionError | None = None
        first = next(self._lines, None)
        if first is None:
            _refuse_line(1, "there is nothing in it")
        if first[1].startswith(_COMPRESSED):
            _refuse_line(1, "the file is compressed; an export is plain text, so unpack it first")
        if first[1].startswith(_BYTE_ORDER_MARKS):
            _refuse_line(1, "it begins with a byte order mark; an export is UTF-8 without one")
        self.record: SessionRecord = read_record(first[1])

    async def land(
        self,
        store: Store,
        *,
        renamed: tuple[SessionId, int] | None = None,
        cwd: str | None = None,
        progress: Progress = no_progress,
    ) -> SessionRecord:
        """Import the session; give its record. `renamed` has another id and when that was made, in Unix epoch ms; `cwd` is
        another folder; `progress` is told of events.

        Raises SessionCorruptionError and DigestMismatchError, whose `line` is the first that is wrong (for a digest: the
        last that may be), and what `Store.import_session` raises.
        """
        record = self.record
        if renamed is not None:
            record = replace(record, id=renamed[0], created_at=renamed[1])
        if cwd is not None:
            record = replace(record, cwd=cwd)
        try:
            return await store.import_session(record, self._events(progress))
        except DigestMismatchError as error:
            raise DigestMismatchError(
                f"lines 2 to {record.tail + 2}: {error.message}; one of them was changed, or line 1", line=record.tail + 2
            ) from None
        except SessionCorruptionError as error:
            seq = error.details.get("seq")
            if self._stopped is not None and (seq is None or seq >= self._given):
                raise self._stopped from None
            if seq is None:
                raise
            _refuse_line(seq + 2, error.message)

    def _events(self, progress: Progress) -> Iterator[bytes]:
        """Iterate over the lines of events. At the first that is wrong here it ends, with too few for a session: those before
        are judged first, and theirs is the first fault then."""
        try:
            for line in self._judged():
                self._given += 1
                yield line
                progress(self._given, self.record.tail + 1)
        except SessionCorruptionError as error:
            self._stopped = error

    def _judged(self) -> Iterator[bytes]:
        whole, parent = self.record.tail + 1, self.record.parent
        seq, digest = -1, CHAIN_START
        held: bytes | None = None  # the last line waits until it is known that none follows
        for number, line in self._lines:
            seq += 1
            if seq == whole:
                _refuse_line(number, f"there is more than the {whole} events that line 1 announces")
            if parent is not None and seq <= parent.at:
                digest = chain_step(digest, line)
                if seq == parent.at and digest.hex() != parent.digest:
                    _refuse_line(number, f"lines 2 to {number} are not what the fork inherited: they give {digest.hex()}")
            if held is not None:
                yield held
            held = line
        if seq + 1 < whole:
            _refuse_line(seq + 2, f"the file ends here, behind {seq + 1} of {whole} events: it was cut off")
        if held is not None:
            yield held


def _numbered(blocks: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """Cut bytes into lines, each with its number from 1. The last one may lack its line break."""
    number, begun = 0, bytearray()
    for block in blocks:
        begun += block
        if b"\n" in block:
            *lines, rest = bytes(begun).split(b"\n")
            begun = bytearray(rest)
            for line in lines:
                number += 1
                yield number, _checked(number, line)
        most = MAX_LINE_BYTES if number else MAX_FIRST_LINE_BYTES
        if len(begun) > most:
            _refuse_line(number + 1, f"longer than the {most >> 20} MiB that it can have")
    if begun:
        yield number + 1, _checked(number + 1, bytes(begun))


def _checked(number: int, line: bytes) -> bytes:
    if not line:
        _refuse_line(number, "it is empty")
    if line.endswith(b"\r"):
        _refuse_line(number, "it ends with a carriage return: its line ends were converted; an export has plain ones")
    return line


def _refuse_line(number: int, reason: str) -> NoReturn:
    raise SessionCorruptionError(f"line {number}: {reason}", line=number)


_BYTE_ORDER_MARKS: Final = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")

_COMPRESSED: Final = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ", b"BZh", b"PK\x03\x04")
"""How files of gzip, zstd, xz, bzip2 and zip begin."""
