"""The command `refold requests`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from refold_protocol.ids import SessionId
from refold_server.cli.command_line import add_json, add_session, add_store
from refold_server.cli.exit_codes import COMPLETED, STORE_CODES
from refold_server.cli.formatting import one_line
from refold_server.cli.terminal import Style, show_progress, standard_error, standard_output
from refold_server.cli.text_tables import aligned

if TYPE_CHECKING:
    from refold_protocol.session.messages import Usage
    from refold_protocol.session.request_rows import SentRow

SUMMARY = "list the requests that a session sent to models"
DESCRIPTION = """List each request that a session sent to a model, those for summaries too: which step it was for, the tokens
that the provider reported, the size of its body, how long it took, how it ended, and the model. Of a fork, the requests that
it inherited are marked and not counted in the sum. --json adds digests, dialect and attempt. Reads the log alone."""
EXIT_CODES = STORE_CODES

_HEADINGS: Final = ("step", "seq", "input", "read", "written", "output", "bytes", "seconds", "end", "model")
_LEFT: Final = (0, 8, 9)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_session(parser)
    add_json(parser, "one JSON object a request, as request/list gives it, one a line")
    add_store(parser)


async def run(options: argparse.Namespace) -> int:
    """List the requests of a session."""
    from refold_server.cli.command_context import open_context, read_config
    from refold_server.requests.offline_check import request_rows
    from refold_server.sessions.session_views import reading

    out, err = standard_output(), standard_error()
    async with (
        open_context(read_config(options)) as context,
        reading(context.sessions, SessionId(options.session)) as (handle, _),
    ):
        with show_progress(err, handle.tail + 1) as progress:
            rows = await request_rows(handle, progress)
    if options.json:
        out.put_json(*rows)
    else:
        for line in table_lines(rows, out.style):
            out.line(line)
    out.flush()
    if not rows:
        err.line(err.style.dim("(no request was sent yet)"))
    return COMPLETED


def table_lines(rows: Sequence[SentRow], style: Style) -> Iterator[str]:
    """Give a heading, a line for each request, and a sum; nothing for no requests."""
    if not rows:
        return
    heading, *lines = (line.rstrip() for line in aligned([_HEADINGS, *map(_cells, rows)], _LEFT))
    yield style.dim(heading)
    for row, line in zip(rows, lines, strict=True):
        yield style.dim(f"{line} (inherited)") if row.inherited else line
    yield _sum(rows)


def _cells(row: SentRow) -> tuple[str, ...]:
    place = "summary" if row.purpose == "summary" else f"{row.turn}.{row.step}"
    if row.attempt > 1:
        place += f" try {row.attempt}"
    seconds = "?" if row.duration_ms is None else f"{row.duration_ms / 1000:.1f}"
    end = one_line(row.end or "(none yet)", 40)
    return (place, str(row.seq), *_tokens(row.usage), f"{row.bytes:,}", seconds, end, one_line(row.model, 120))


def _tokens(usage: Usage | None) -> tuple[str, ...]:
    if usage is None:
        return ("?",) * 4
    buckets = (usage.input_tokens, usage.cache_read_tokens, usage.cache_write_tokens, usage.output_tokens)
    return tuple("-" if bucket is None else f"{bucket:,}" for bucket in buckets)


def _sum(rows: Sequence[SentRow]) -> str:
    own = [row for row in rows if not row.inherited]
    parts = [f"{len(own)} request{'' if len(own) == 1 else 's'}"]
    usages = [row.usage for row in own if row.usage is not None]
    prompt, output = sum(usage.prompt_tokens for usage in usages), sum(usage.output_tokens for usage in usages)
    parts.append(f"{prompt:,} tokens in, {output:,} out")
    if silent := len(own) - len(usages):
        parts.append(f"{silent} without a report")
    if inherited := len(rows) - len(own):
        parts.append(f"{inherited} inherited, not counted")
    return "; ".join(parts)
