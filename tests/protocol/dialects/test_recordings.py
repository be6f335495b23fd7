"""Recorded answers of real servers, where their folder is there: whole, cut into pieces and ended at every byte.

They are other people's and stay outside the repository: `REFOLD_RECORDINGS` names the folder, else it is looked for beside
the repository. Every byte is tried with `REFOLD_EVERY_BYTE=1`, else a sample. What one of them taught is a small input of its
own in the other tests.
"""

from __future__ import annotations

import copy
import json
import os
from pathlib import Path
from typing import Any, cast

import pytest

from refold_protocol.dialects.chat_completions_stream import ChatCompletionsDecoder
from refold_protocol.dialects.provider_failures import failure_error, read_failure
from refold_protocol.errors import ProviderError
from refold_protocol.session.chunks import assemble
from refold_protocol.session.messages import Chunk, FinishChunk, ToolCallBlock
from tests.support.chat_stream import decode_until_failure, reasoning_in, text_in

Json = dict[str, Any]

FOLDER = Path(os.environ.get("REFOLD_RECORDINGS", Path(__file__).parents[4] / "shared" / "recordings"))
SAMPLE = 1 if os.environ.get("REFOLD_EVERY_BYTE") else 97
"""Each so many-th byte is tried; a prime, so that no form of events is met at one place only."""

STREAMS = sorted((FOLDER / "chat").glob("*.response.sse"))
ERRORS = sorted((FOLDER / "chat").glob("*error*.response.json")) + sorted((FOLDER / "gemini").glob("*error*.response.json"))

FAILING = {"gpustack-error-field", "groq-error-in-stream-1", "openrouter-error-in-stream"}
"""Streams that tell of an error."""

KINDS = {"401": "provider.auth", "key": "provider.auth", "overflow": "provider.contextOverflow", "429": "provider.rateLimited"}


def test_the_recordings_are_there() -> None:
    if not FOLDER.is_dir():
        pytest.skip(f"no recordings at {FOLDER}; set REFOLD_RECORDINGS to try them")
    assert len(STREAMS) > 30


def finished(decoder: ChatCompletionsDecoder, rest: bytes, *, cut: bool) -> tuple[list[Chunk], ProviderError | None]:
    """Feed the rest to a decoder, and end it."""
    chunks: list[Chunk] = []
    try:
        chunks += decoder.feed(rest)
        chunks += decoder.close(cut=cut)
    except ProviderError as error:  # the outcome that is looked at
        return chunks, error
    return chunks, decoder.failure


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.name.split(".")[0])
def test_a_recorded_stream_is_the_same_however_it_is_cut(path: Path) -> None:
    data = path.read_bytes()
    whole, failure = decode_until_failure(data)
    assert (failure is not None) == (path.name.split(".")[0] in FAILING), failure
    decoder = ChatCompletionsDecoder()
    before: list[Chunk] = []
    for at in range(0, len(data), SAMPLE):
        rest, failed = finished(copy.deepcopy(decoder), data[at:], cut=False)
        assert (before + rest, str(failed)) == (whole, str(failure)), f"cut at byte {at}"
        if decoder.failure is not None or decoder.done:
            break
        try:
            before += decoder.feed(data[at : at + SAMPLE])
        except ProviderError:  # the failure of the whole, met by the copies as well
            break


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.name.split(".")[0])
@pytest.mark.parametrize("cut", [False, True])
def test_a_recorded_stream_that_ends_too_early_is_no_completed_reply(path: Path, cut: bool) -> None:
    """Ended at a byte, it is the whole reply, or an error that says so; never a smaller reply."""
    data = path.read_bytes()
    whole, _ = decode_until_failure(data)
    wanted = (text_in(whole), reasoning_in(whole), calls_in(whole))
    decoder = ChatCompletionsDecoder()
    before: list[Chunk] = []
    for at in range(0, len(data), SAMPLE):
        rest, failed = finished(copy.deepcopy(decoder), b"", cut=cut)
        came = before + rest
        if failed is None:
            assert (text_in(came), reasoning_in(came), calls_in(came)) == wanted, f"ended at byte {at}"
        else:
            assert wanted[0].startswith(text_in(came))
            assert failed.message
        if decoder.failure is not None or decoder.done:
            break
        try:
            before += decoder.feed(data[at : at + SAMPLE])
        except ProviderError:  # an error in the stream itself: nothing after it counts
            break


def calls_in(chunks: list[Chunk]) -> list[tuple[str, str]]:
    return [(block.name, block.arguments) for block in assemble(chunks).content if isinstance(block, ToolCallBlock)]


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.name.split(".")[0])
def test_totals_and_texts_are_the_providers(path: Path) -> None:
    """Against a reading of its own: every event's JSON, its texts joined, the last usage."""
    text, thought = "", ""
    total: Any = None
    for line in path.read_bytes().splitlines():
        event: Json = json.loads(line[6:]) if line.startswith(b"data: {") else {}
        total = cast("Json", event.get("usage") or {}).get("total_tokens", total)
        for choice in cast("list[Json]", event.get("choices") or []):
            delta = cast("Json", choice.get("delta") or {})
            thought += delta.get("reasoning_content") or delta.get("reasoning") or ""
            content: Any = delta.get("content") or ""
            for part in cast("list[Json]", content if isinstance(content, list) else [{"text": content}]):
                text += part.get("text", "")
                thought += "".join(inner["text"] for inner in cast("list[Json]", part.get("thinking", ())))
    chunks, failure = decode_until_failure(path.read_bytes())
    assert (text_in(chunks), reasoning_in(chunks)) == (text, thought)
    usage = assemble(chunks).usage
    if failure is None and total is not None:
        assert usage is not None
        assert usage.total_tokens == total
    assert failure is not None or isinstance(chunks[-1], FinishChunk)


@pytest.mark.parametrize("path", ERRORS, ids=lambda path: path.name.split(".")[0])
def test_a_recorded_error_has_its_kind_and_the_servers_words(path: Path) -> None:
    payload = json.loads(path.read_bytes())
    failure = read_failure(payload)
    assert failure is not None
    assert failure.message
    status = next((int(word) for word in path.name.split(".")[0].split("-") if word.isdecimal() and len(word) == 3), None)
    error = failure_error(failure, status=status)
    name = path.name.split(".")[0]
    kind = next(
        (kind for word, kind in KINDS.items() if word in name and not ("429" in name and word == "key")), "provider.rejected"
    )
    assert error.error_kind == kind
    assert failure.message[:100].split()[0] in error.message
