"""Damage for tests: a store's records changed with raw LMDB, past everything that watches over them.

Nothing here goes through the store's own code but the reading and writing of a record's bytes. The session is the one with
the highest number, unless a number is given.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import lmdb
from msgspec import Struct

from refold_protocol.ids import SessionId
from refold_protocol.session.codec import CHAIN_START
from refold_storage.record_keys import session_key
from refold_storage.records import HEAD_BYTES, Record, decode_record, encode_record

if TYPE_CHECKING:
    Transaction: TypeAlias = lmdb.Transaction[bytes]


class Stored(Struct, frozen=True):
    """A record as it lies in the store: key, value, and what they mean."""

    key: bytes
    value: bytes
    record: Record


class Disk:
    """The records of one session, as a failing disk would meet them."""

    def __init__(self, store: Path, number: int | None = None) -> None:
        self.store = store
        self.number = number
        self.records = self._read()

    def put(self, key: bytes, value: bytes | None) -> None:
        """Store a value under a key, or take the key away."""
        with self._writing() as (transaction, records):
            transaction.delete(key, db=records)
            if value is not None:
                transaction.put(key, value, db=records)

    def flip(self, at: int, byte: int, mask: int = 0x01) -> None:
        """Flip bits of one byte of the record `at`; the body begins at byte 40."""
        value = bytearray(self.records[at].value)
        value[byte] ^= mask
        self.put(self.records[at].key, bytes(value))

    def cut(self, at: int, size: int) -> None:
        """Leave only the first `size` bytes of the record `at`."""
        self.put(self.records[at].key, self.records[at].value[:size])

    def drop(self, *positions: int) -> None:
        """Take records away."""
        for at in positions:
            self.put(self.records[at].key, None)

    def swap(self, one: int, other: int) -> None:
        """Put two records in each other's place."""
        first, second = self.records[one], self.records[other]
        self.put(first.key, second.value)
        self.put(second.key, first.value)

    def change_line(self, at: int, line: int, old: bytes, new: bytes) -> int:
        """Change the line `line` of the record `at`, which is otherwise whole and keeps its digest; give the seq."""
        stored = self.records[at]
        lines = list(stored.record.lines)
        assert old in lines[line]
        lines[line] = lines[line].replace(old, new, 1)
        self.put(stored.key, encode_record(lines, stored.record.digest))
        return stored.record.first + line

    def change_digest(self, at: int) -> None:
        """Change the digest in the head of the record `at`, and nothing else."""
        value = self.records[at].value
        self.put(self.records[at].key, value[: HEAD_BYTES - 32] + CHAIN_START + value[HEAD_BYTES:])

    def spoil_row(self, session: str) -> None:
        """Put something unreadable in place of a session's row."""
        self._change_row(session, lambda _: b"{")

    def change_row(self, session: str, **changes: object) -> None:
        """Change members of a session's row."""
        self._change_row(session, lambda row: json.dumps(json.loads(row) | changes).encode())

    def _change_row(self, session: str, change: Callable[[bytes], bytes]) -> None:
        key = session_key(SessionId(session))
        with lmdb.open(str(self.store), 1 << 30, max_dbs=8, lib_version=0) as environment:
            rows = environment.open_db(b"sessions")
            with environment.begin(write=True) as transaction:
                row = transaction.get(key, db=rows)
                assert row is not None
                transaction.put(key, change(row), db=rows)

    def line_with(self, text: bytes) -> tuple[int, int]:
        """Give the position of a record and of the first line in it that holds `text`."""
        for at, stored in enumerate(self.records):
            for line, content in enumerate(stored.record.lines):
                if text in content:
                    return at, line
        raise AssertionError(f"no line holds {text!r}")

    def _read(self) -> list[Stored]:
        found: list[Stored] = []
        with self._writing() as (transaction, records), transaction.cursor(records) as cursor:
            for key, value in cursor:
                owner, first = int.from_bytes(key[:8], "big"), int.from_bytes(key[8:], "big")
                if found and found[-1].key[:8] != key[:8] and self.number is None:
                    found.clear()
                if self.number in (None, owner):
                    found.append(Stored(key, value, decode_record(first, value)))
        return found

    @contextmanager
    def _writing(self) -> Generator[tuple[Transaction, Any]]:
        with lmdb.open(str(self.store), 1 << 30, max_dbs=8, lib_version=0) as environment:
            records = environment.open_db(b"records")
            with environment.begin(write=True) as transaction:
                yield transaction, records
