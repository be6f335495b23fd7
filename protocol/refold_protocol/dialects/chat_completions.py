"""The chat-completions dialect: OpenAI's wire form, which most servers speak. This is its public face.

Never sends or receives. The parts: `chat_completions_options` (settings), `_encode` (Request to body), `_segments` (the
names of a body's parts), `_decode` (stream to chunks) over `_blocks` (which delta belongs where) and `_wire` (JSON shapes).
"""

from __future__ import annotations

from typing import Final

from refold_protocol.dialects.chat_completions_decode import StreamDecoder
from refold_protocol.dialects.chat_completions_encode import ENCODER, TAIL, BodyEncoder, encode
from refold_protocol.dialects.chat_completions_options import Options, check_extra, resolve_options
from refold_protocol.dialects.chat_completions_segments import segments
from refold_protocol.dialects.dialect import Dialect

__all__ = ["CHAT_COMPLETIONS", "ENCODER", "BodyEncoder", "Options", "StreamDecoder", "check_extra", "encode"]
__all__ += ["resolve_options"]

CHAT_COMPLETIONS: Final = Dialect(
    encoder=ENCODER,
    encode=encode,
    segments=segments,
    tail=TAIL,
    make_encoder=BodyEncoder,
    make_decoder=StreamDecoder,
    resolve_options=resolve_options,
    check_extra=check_extra,
    path="/chat/completions",
    key_header="authorization",
    key_prefix="Bearer ",
    headers=(("content-type", "application/json"), ("accept", "text/event-stream")),
)
"""This dialect's row of the table."""
