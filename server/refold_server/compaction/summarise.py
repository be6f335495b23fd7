"""Owns the judging of a summary: what a model answered, and whether it may stand for a region."""

from __future__ import annotations

from collections.abc import Iterable

from refold_protocol.errors import ProviderError
from refold_protocol.session.chunks import assemble
from refold_protocol.session.messages import Chunk, TextBlock, ToolCallBlock
from refold_server.compaction.failure import CompactionError
from refold_server.plugins.hook_table import Summary


def summary_of(chunks: Iterable[Chunk], model: str) -> Summary:
    """Give the summary that a reply is. Raises CompactionError for a reply that is none: cut off by the output limit, a
    call of a tool, refused, blank; ProviderError where it has no end."""
    reply = assemble(chunks)
    if reply.finish is None:
        raise ProviderError("provider.badStream", "The provider's answer ended without saying that it is complete. Try again.")
    if any(isinstance(block, ToolCallBlock) for block in reply.content) or reply.finish == "tool-calls":
        raise CompactionError("The model called a tool instead of writing a summary.", again=True)
    if reply.finish == "length":
        raise CompactionError("The summary was cut off by the output limit; raise compaction.summary_max_tokens.", again=True)
    if reply.finish in ("content-filter", "refusal"):
        raise CompactionError("The model or its provider refused to write a summary.", again=True)
    text = "\n".join(block.text for block in reply.content if isinstance(block, TextBlock)).strip()
    if not text:
        raise CompactionError("The model wrote no summary: its answer is blank.", again=True)
    return Summary(text, model, reply.usage)


def check_shrinks(price: int, region: int) -> None:
    """Raise CompactionError for a summary that costs `price` tokens where its region costs no more than that."""
    if price >= region:
        message = f"The summary would not make the history shorter: it costs {price} tokens, what it stands for {region}."
        raise CompactionError(message, again=True)
