"""Owns the embedded provider: it works offline, needs no key, and replaces nothing but the transport.

It takes a chat-completions body and makes the bytes of a chat-completions stream, which the ordinary decoder reads. What
it says is a function of the body alone (`rehearsal_policy.py`), or, where the body names a `script`, the script's next
reply. Only the cached tokens that it reports depend on what this process saw before.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Final

import anyio
import msgspec

from refold_protocol.dialects.chat_completions import StreamDecoder
from refold_protocol.errors import ProviderError
from refold_protocol.session.messages import Chunk
from refold_protocol.session.request import Request
from refold_server.providers.rehearsal_policy import RehearsalBody, decide
from refold_server.providers.rehearsal_script import Script
from refold_server.providers.rehearsal_wire import PrefixMemory, Writes, spoken

MODEL: Final = "workspace"
"""The one model there is."""


class RehearsalProvider:
    """The provider. Keeps the bodies that it saw, and how far each script has run."""

    def __init__(self) -> None:
        self._memory = PrefixMemory()
        self._scripts: dict[str, Script] = {}

    async def stream(self, request: Request, body: bytes) -> AsyncGenerator[Chunk, None]:
        """Give the reply to `body`. See Provider.stream."""
        del request
        writes = self._answer(body)
        decoder = StreamDecoder()
        for write in writes.events:
            await anyio.sleep(writes.delay_s)
            for chunk in decoder.feed(write):
                yield chunk
        for chunk in decoder.close(cut=writes.cut):
            yield chunk
        if decoder.failure is not None:
            raise decoder.failure

    def _answer(self, body: bytes) -> Writes:
        try:
            asked = _DECODER.decode(body)
        except msgspec.DecodeError as error:
            raise ProviderError("provider.rejected", f"the rehearsal provider cannot read this body: {error}") from None
        if asked.model != MODEL:
            raise ProviderError("provider.rejected", f"the rehearsal provider has no model {asked.model!r}; use {MODEL!r}")
        cached = self._memory.common_characters(body)
        if asked.script is None:
            return Writes(spoken(decide(asked), body, cached))
        return self._scripts.setdefault(asked.script, Script(asked.script)).next_reply(body, cached)


_DECODER: Final = msgspec.json.Decoder(RehearsalBody)
