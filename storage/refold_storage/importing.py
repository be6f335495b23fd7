"""Owns reading an export from its bytes: lines, each with its number, so that what is wrong with a file is named by its line.

The lines go to `Store.import_session` as they are; an export that was changed on its way is refused, never mended: a byte
order mark, line ends of another system and a missing end are changes too. Knows no file; reads each byte once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NoReturn

from msgspec.structs import replace

from refold_protocol.errors import DigestMismatchError, SessionCorruptionError
from refold_protocol.ids import SessionId
from refold_protocol.session.chain import CHAIN_START, chain_step
from refold_storage.interface import Progress, SessionRecord, Store, no_progress
from refold_storage.portable import read_record
from refold_storage.records import MAX_LINE_BYTES


class Incoming:
    """An export whose first line was read: `record` is what that says. `land` reads the rest, once."""

    def __init__(self, blocks: Iterable[bytes]) -> None:
        """Read the first line of what `blocks` are pieces of. Raises SessionCorruptionError, SessionFormatUnsupportedError."""
        self._lines = _numbered(blocks)
        self._given = 0
        self._stopped: SessionCorruptionError | None = None
        first = next(self._lines, None)
        if first is None:
            _refuse(1, "there is nothing in it")
        if first[1].startswith(_COMPRESSED):
            _refuse(1, "the file is compressed; an export is plain text, so unpack it first")
        if first[1].startswith(_BYTE_ORDER_MARKS):
            _refuse(1, "it begins with a byte order mark; an export is UTF-8 without one")
        self.record: SessionRecord = read_record(first[1])

    async def land(
        self, store: Store, *, renamed: tuple[SessionId, int] | None = None, progress: Progress = no_progress
    ) -> SessionRecord:
        """Import the session; give its record. `renamed` has another id and when that was made, in Unix epoch ms; `progress`
        is told of events.

        Raises SessionCorruptionError and DigestMismatchError, whose `line` is the first that is wrong (for a digest: the
        last that may be), and what `Store.import_session` raises.
        """
        record = self.record
        if renamed is not None:
            record = replace(record, id=renamed[0], created_at=renamed[1])
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
            _refuse(seq + 2, error.message)

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
                _refuse(number, f"there is more than the {whole} events that line 1 announces")
            if parent is not None and seq <= parent.at:
                digest = chain_step(digest, line)
                if seq == parent.at and digest.hex() != parent.digest:
                    _refuse(number, f"lines 2 to {number} are not what the fork inherited: they give {digest.hex()}")
            if held is not None:
                yield held
            held = line
        if seq + 1 < whole:
            _refuse(seq + 2, f"the file ends here, behind {seq + 1} of {whole} events: it was cut off")
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
        if len(begun) > MAX_LINE_BYTES:
            _refuse(number + 1, "longer than any line can be")
    if begun:
        yield number + 1, _checked(number + 1, bytes(begun))


def _checked(number: int, line: bytes) -> bytes:
    if not line:
        _refuse(number, "it is empty")
    if line.endswith(b"\r"):
        _refuse(number, "it ends with a carriage return: the line ends of the file were converted; an export has plain ones")
    return line


def _refuse(number: int, reason: str) -> NoReturn:
    raise SessionCorruptionError(f"line {number}: {reason}", line=number)


_BYTE_ORDER_MARKS: Final = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")

_COMPRESSED: Final = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ", b"BZh", b"PK\x03\x04")
"""How files of gzip, zstd, xz, bzip2 and zip begin."""
