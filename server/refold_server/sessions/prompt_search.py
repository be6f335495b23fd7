"""The search in what was asked: the prompts of a session, read from its log when they are searched, and kept for a while.

The catalogue has no prompts: a row is written with every commit, and must stay small. So a search reads logs, chunks and
all, which costs about half a microsecond an event; the texts that were found are kept while they fit, since whoever types a
word searches once a letter. What is kept is a cache: it is used only where the log still ends as it did.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final
from unicodedata import normalize

import anyio.lowlevel
from msgspec import Struct

from refold_protocol.errors import RefoldError
from refold_protocol.ids import SessionId
from refold_protocol.session.codec import decode_event
from refold_protocol.session.events import InputAccepted
from refold_protocol.session.messages import text_of
from refold_storage.interface import SessionRecord, Store

KEPT_CHARACTERS: Final = 4 * 1024 * 1024
"""Characters of prompts that are kept, the last used ones."""

BATCH_BYTES: Final = 256 * 1024
"""Bytes of lines that are read before others get a turn."""


class Prompts:
    """The prompts of a store's sessions."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: OrderedDict[SessionId, _Kept] = OrderedDict()
        self._characters = 0

    def cost(self, record: SessionRecord) -> int:
        """Give the number of events that `hold` would read."""
        return 0 if self._find(record) is not None else record.tail + 1

    async def hold(self, record: SessionRecord, text: str) -> bool:
        """Tell whether a prompt or a steering message of a session holds a text, which is as `folded` gives it. A log that
        cannot be read, or was deleted meanwhile, holds nothing."""
        found = self._find(record)
        if found is None:
            try:
                found = await self._read(record)
            except RefoldError:  # whoever opens the session is told what is wrong with it
                return False
            self._keep(record, found)
        return text in found

    def _find(self, record: SessionRecord) -> str | None:
        kept = self._kept.get(record.id)
        if kept is None or kept.head_digest != record.head_digest:
            return None
        self._kept.move_to_end(record.id)
        return kept.text

    def _keep(self, record: SessionRecord, text: str) -> None:
        before = self._kept.pop(record.id, None)
        self._characters += len(text) - (0 if before is None else len(before.text))
        self._kept[record.id] = _Kept(record.head_digest, text)
        while self._characters > KEPT_CHARACTERS:
            _, gone = self._kept.popitem(last=False)
            self._characters -= len(gone.text)

    async def _read(self, record: SessionRecord) -> str:
        texts: list[str] = []
        handle = await self._store.open(record.id, "read")
        try:
            first = 0
            while first <= record.tail:
                lines = handle.lines(first, record.tail, max_bytes=BATCH_BYTES, chunks=False)
                for line in lines:
                    if line.startswith(_INPUT):
                        data = decode_event(line).data
                        if isinstance(data, InputAccepted) and data.mode != "inject":
                            texts.append(text_of(data.content))
                first += len(lines)
                await anyio.lowlevel.checkpoint()
        finally:
            await handle.close()
        return folded("\n".join(texts))


def folded(text: str) -> str:
    """Give a text in the form in which texts are compared: whatever its case, and however its letters are put together."""
    if text.isascii():
        return text.lower()
    return normalize("NFC", normalize("NFD", text).casefold())


class _Kept(Struct, frozen=True, gc=False):
    head_digest: str
    text: str


_INPUT: Final = b'{"type":"input/accepted",'
