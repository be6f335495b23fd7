"""The command `refold cache`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from refold_protocol.ids import SessionId
from refold_server.cli.command_line import add_json, add_session, add_store
from refold_server.cli.exit_codes import COMPLETED, STORE_CODES
from refold_server.cli.formatting import whole_line
from refold_server.cli.terminal import Style, show_progress, standard_error, standard_output
from refold_server.cli.text_tables import aligned

if TYPE_CHECKING:
    from refold_server.rpc.proof_methods import RequestExplainResult

SUMMARY = "show what each request shares with the one before, and what broke it"
DESCRIPTION = """Show for each request how many of its bytes it shares with the one before, and how many tokens the provider
says it read from its cache. A request whose body does not begin with the one before is a break: below it stand the events
that caused it and the first byte that differs. Where the bytes are kept and clearly fewer tokens are reported as cached than
the provider had read, the provider has lost them; "as far as bytes tell" is said where its figures do not tell. Reads the
log alone and asks no provider."""
EXIT_CODES = STORE_CODES

VERDICTS: Final[dict[str, str]] = {
    "first": "first",
    "kept": "kept",
    "unknown": "kept, as far as bytes tell",
    "summary": "kept, but a summary's request came between",
    "provider": "kept, but lost by the provider",
    "moved": "kept, but sent to another provider",
    "break": "break",
    "apart": "a request for a summary, by itself",
}
"""What the table says for each verdict."""

_HEADINGS: Final = ("step", "bytes", "shared", "prompt", "cached")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_session(parser)
    add_json(parser, "one JSON object a request, as request/explain gives it, one a line")
    add_store(parser)


async def run(options: argparse.Namespace) -> int:
    """Show how the requests of a session fared with the provider's cache."""
    from refold_server.cli.command_context import open_context, read_config
    from refold_server.requests.offline_check import request_history
    from refold_server.rpc.proof_methods import explained_log
    from refold_server.sessions.session_views import reading

    out, err = standard_output(), standard_error()
    async with (
        open_context(read_config(options)) as context,
        reading(context.sessions, SessionId(options.session)) as (handle, _),
    ):
        with show_progress(err, handle.tail + 1) as progress:
            results = explained_log(await request_history(handle, progress))
    if options.json:
        out.put_json(*results)
    else:
        for line in table_lines(results, out.style):
            out.line(line)
    out.flush()
    if not results:
        err.line(err.style.dim("(no request was sent yet)"))
    return COMPLETED


def table_lines(results: Sequence[RequestExplainResult], style: Style) -> Iterator[str]:
    """Give a heading, a line for each request with its reasons below it, and a summary; nothing for no requests."""
    if not results:
        return
    cells = [_cells(result) for result in results]
    heading, *lines = aligned([_HEADINGS, *cells])
    indent = " " * (max(len(row[0]) for row in (_HEADINGS, *cells)) + 2)
    yield style.dim(f"{heading}  verdict")
    for result, line in zip(results, lines, strict=True):
        words = VERDICTS[result.verdict]
        good = result.verdict in ("first", "kept", "unknown", "apart")
        yield f"{line}  {words if good else style.red(words)}"
        for reason in result.reasons:
            yield f"{indent}{style.dim(whole_line(reason))}"
    yield _summary(results)


def _cells(result: RequestExplainResult) -> tuple[str, ...]:
    asked = result.request
    place = "summary" if result.verdict == "apart" else f"{asked.turn}.{asked.step}"
    place += f" try {asked.attempt}" if asked.attempt > 1 else ""
    if result.against is None:
        shared = "-"
    else:
        shared = "?" if result.common is None else f"{result.common * 100 // max(asked.bytes, 1)} %"
    tokens = ("?" if count is None else f"{count:,}" for count in (result.prompt_tokens, result.cached_tokens))
    return (place, f"{asked.bytes:,}", shared, *tokens)


def _summary(results: Sequence[RequestExplainResult]) -> str:
    counts = dict.fromkeys(("kept", "break", "moved", "summary", "provider", "apart"), 0)
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
    if counts["apart"]:
        parts.append(f"{counts['apart']} for summaries")
    line = f"{len(results)} request{'' if len(results) == 1 else 's'}: {', '.join(parts)}"
    asked = sum(result.prompt_tokens or 0 for result in results if result.cached_tokens is not None)
    cached = sum(result.cached_tokens or 0 for result in results)
    if not asked:
        return f"{line}; cached tokens were not reported"
    return f"{line}; {cached:,} of {asked:,} prompt tokens were cached ({cached * 100 // asked} %)"
