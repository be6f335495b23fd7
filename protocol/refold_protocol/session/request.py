"""Owns the Request: what a model is asked, independent of any provider's wire form, and its canonical digest.

A Request is its header and its history; nothing else can reach an encoder. Messages go to the provider in this order:
system (from the header), the header's message prefix, the history. Built by `rebuild.py`, never by hand outside tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from itertools import chain

from msgspec import Struct

from refold_protocol.session.header_types import EpochHeader
from refold_protocol.session.messages import Message, encode_compact
from refold_protocol.session.tape import Tape


class Request(Struct, frozen=True):
    """One request, deeply immutable. `header` is canonical; `history` is the surface's projection, oldest first."""

    header: EpochHeader
    history: Tape[Message]

    def messages(self) -> Iterator[Message]:
        """Iterate over the messages: the header's prefix, then the history. The system text is not among them."""
        return chain(self.header.message_prefix or (), self.history)


class RequestDigest:
    """Computes `requestSha256`; of a request that extends the one before, only what is new.

    The digest is SHA-256 over the compact JSON of `{header, messages}`: fields in declared order, absent ones omitted,
    images by digest. Fixed for FORMAT_VERSION 0.
    """

    def __init__(self) -> None:
        self._header: EpochHeader | None = None
        self._history: Tape[Message] = Tape()
        self._state = sha256()
        self._empty = True

    def of(self, request: Request) -> str:
        """Give the digest in lower-case hex."""
        if request.header != self._header or not request.history.extends(self._history):
            self._restart(request.header)
        self._add(request.history.since(len(self._history)))
        self._history = request.history
        whole = self._state.copy()
        whole.update(b"]}")
        return whole.hexdigest()

    def _restart(self, header: EpochHeader) -> None:
        self._header = header
        self._history = Tape()
        self._empty = True
        self._state = sha256(b'{"header":' + encode_compact(header) + b',"messages":[')
        self._add(iter(header.message_prefix or ()))

    def _add(self, messages: Iterator[Message]) -> None:
        for message in messages:
            self._state.update(encode_compact(message) if self._empty else b"," + encode_compact(message))
            self._empty = False


def request_sha256(request: Request) -> str:
    """Give `requestSha256` of one request, computed from nothing."""
    return RequestDigest().of(request)
