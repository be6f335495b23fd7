"""Owns `refold cache`: what each request of a session shares with the one before, and what broke it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Final

import msgspec

from refold_protocol.ids import SessionId
from refold_protocol.rpc.explaining import RequestExplainResult
from refold_server.checks.attribution import request_history
from refold_server.cli.exits import COMPLETED
from refold_server.cli.interrupts import run_reading
from refold_server.cli.opened import opened, read_config
from refold_server.cli.people import printable
from refold_server.cli.screen import Look, Screen
from refold_server.cli.verify import progress
from refold_server.rpc.explained import explain_result
from refold_server.sessions.reading import reading

VERDICTS: Final[dict[str, str]] = {
    "first": "first",
    "kept": "kept",
    "unknown": "kept, as far as bytes tell",
    "summary": "kept, but a summary's request came between",
    "provider": "kept, but lost by the provider",
    "moved": "kept, but sent to another provider",
    "break": "break",
}
"""What the table says for each verdict."""

_HEADINGS: Final = ("step", "bytes", "shared", "prompt", "cached")


def command(options: argparse.Namespace) -> int:
    """Show how the requests of a session fared with the provider's cache."""
    return run_reading(partial(_command, options))


async def _command(options: argparse.Namespace) -> int:
    out, aside = Screen(sys.stdout), Screen(sys.stderr, vital=False)
    async with (
        opened(read_config(options)) as around,
        reading(around.sessions, SessionId(options.session)) as (handle, _),
    ):
        with progress(aside, handle.tail + 1) as told:
            state = (await request_history(handle, told)).state
    rows = state.rows
    results = [explain_result(now, before, state) for before, now in pairwise((None, *rows)) if now is not None]
    if options.json:
        for result in results:
            out.put_bytes(msgspec.json.encode(result) + b"\n")
    else:
        for line in table_lines(results, out.look):
            out.line(line)
    out.flush()
    if not results:
        aside.line(aside.look.dim("(no request was sent yet)"))
    return COMPLETED


def table_lines(results: Sequence[RequestExplainResult], look: Look) -> Iterator[str]:
    """Give a heading, a line for each request with its reasons below it, and a summary; nothing for no requests."""
    if not results:
        return
    cells = [_cells(result) for result in results]
    widths = [max(map(len, column)) for column in zip(_HEADINGS, *cells, strict=True)]
    yield look.dim(_line(_HEADINGS, widths) + "  verdict")
    for result, cell in zip(results, cells, strict=True):
        words = VERDICTS[result.verdict]
        good = result.verdict in ("first", "kept", "unknown")
        yield f"{_line(cell, widths)}  {words if good else look.red(words)}"
        for reason in result.reasons:
            yield f"{' ' * (widths[0] + 2)}{look.dim(printable(reason))}"
    yield _summary(results)


def _cells(result: RequestExplainResult) -> tuple[str, ...]:
    asked = result.request
    place = f"{asked.turn}.{asked.step}" + (f" try {asked.attempt}" if asked.attempt > 1 else "")
    if result.against is None:
        shared = "-"
    else:
        shared = "?" if result.common is None else f"{result.common * 100 // max(asked.bytes, 1)} %"
    tokens = ("?" if count is None else f"{count:,}" for count in (result.prompt_tokens, result.cached_tokens))
    return (place, f"{asked.bytes:,}", shared, *tokens)


def _line(cell: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(
        text.ljust(width) if at == 0 else text.rjust(width) for at, (text, width) in enumerate(zip(cell, widths, strict=True))
    )


def _summary(results: Sequence[RequestExplainResult]) -> str:
    counts = dict.fromkeys(("kept", "break", "moved", "summary", "provider"), 0)
    for result in results:
        word = "kept" if result.verdict == "unknown" else result.verdict
        if word in counts:
            counts[word] += 1
    parts = [f"{counts['kept']} kept", f"{counts['break']} broken"]
    if counts["summary"]:
        parts.append(f"{counts['summary']} behind a request for a summary")
    if counts["provider"]:
        parts.append(f"{counts['provider']} lost by the provider")
    if counts["moved"]:
        parts.append(f"{counts['moved']} sent to another provider")
    line = f"{len(results)} request{'' if len(results) == 1 else 's'}: {', '.join(parts)}"
    asked = sum(result.prompt_tokens or 0 for result in results if result.cached_tokens is not None)
    cached = sum(result.cached_tokens or 0 for result in results)
    if not asked:
        return f"{line}; cached tokens were not reported"
    return f"{line}; {cached:,} of {asked:,} prompt tokens were cached ({cached * 100 // asked} %)"
