"""The command `refold verify`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from refold_protocol.errors import RefoldError, SessionNotFoundError
from refold_protocol.ids import SessionId
from refold_server.cli.command_line import add_json, add_store, unicode_text
from refold_server.cli.exit_codes import COMPLETED, INTERNAL, STORE_CODES
from refold_server.cli.formatting import whole_line
from refold_server.cli.terminal import OutputStream, Style, show_progress, standard_error, standard_output

if TYPE_CHECKING:
    from refold_protocol.verify import Difference, Report
    from refold_server.cli.command_context import CommandContext

SUMMARY = "prove that logs are whole and that each request follows from them"
DESCRIPTION = """Check that a log is whole (each event's digest follows from the one before), that its events make sense in
their order, and that each request which it says was sent follows from the events before it, byte for byte. Logs that other
processes write are checked as far as they are recorded. On a terminal, long logs show how far the check is."""
EXIT_CODES = STORE_CODES | {
    COMPLETED: "nothing differs",
    INTERNAL: "something differs, or a log cannot be read; or an internal error",
}

SHOWN: Final = 40
"""Differences of one session that a person is told; --json has them all."""


class VerifyFinding(Struct, frozen=True, omit_defaults=True):
    """What was found of a session: the report, or the error that kept the log from being read. `session` is None where not even
    its record could be read."""

    session: SessionId | None
    verified: bool
    report: Report | None = None
    error: str | None = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("session", metavar="SESSION", nargs="?", type=unicode_text, help="the id of a session")
    which.add_argument("--all", action="store_true", help="every session of the store")
    parser.add_argument(
        "--strict",
        action="store_true",
        help="count a request whose encoder this release does not have as a difference (default: report it)",
    )
    add_json(parser, "one JSON object a session, as log/verify gives it, one a line")
    add_store(parser)


async def run(options: argparse.Namespace) -> int:
    """Verify one session or all of them."""
    from refold_server.cli.command_context import open_context, read_config

    out, err = standard_output(), standard_error()
    checked, wrong = 0, 0
    async with open_context(read_config(options)) as context:
        for chosen in _session_ids(context) if options.all else [SessionId(options.session)]:
            try:
                finding = await _verify(context, chosen, err, strict=options.strict)
            except SessionNotFoundError:
                if not options.all:
                    raise
                continue  # it was deleted meanwhile
            checked += 1
            wrong += not finding.verified
            if options.json:
                out.put_json(_told(finding))
            else:
                for line in finding_lines(finding, out.style):
                    out.line(line)
            out.flush()
    if options.all and not options.json:
        out.line(f"{checked} session{'' if checked == 1 else 's'} checked" + (f", {wrong} not verified" if wrong else ""))
    return INTERNAL if wrong else COMPLETED


def _session_ids(context: CommandContext) -> list[SessionId | RefoldError]:
    """Give the sessions of the store, the latest first (ids sort by age), then what is wrong with unreadable records."""
    found = list(context.store.survey())
    ids = [one for one in found if not isinstance(one, RefoldError)]
    return [*sorted(ids, reverse=True), *(one for one in found if isinstance(one, RefoldError))]


async def _verify(
    context: CommandContext, session: SessionId | RefoldError, err: OutputStream, *, strict: bool
) -> VerifyFinding:
    if isinstance(session, RefoldError):
        return VerifyFinding(None, False, error=f"{session.error_kind}: {session.message}")
    from refold_server.requests.offline_check import check_log
    from refold_server.sessions.session_views import examining

    try:
        async with examining(context.sessions, session) as handle:
            with show_progress(err, handle.tail + 1) as progress:
                report = await check_log(handle, progress)
    except SessionNotFoundError:
        raise
    except RefoldError as error:  # a log that cannot be read is a finding; the others are checked all the same
        return VerifyFinding(session, False, error=f"{error.error_kind}: {error.message}")
    return VerifyFinding(session, report.holds and not (strict and report.not_shipped), report)


def _told(finding: VerifyFinding) -> dict[str, object]:
    """Give what --json prints: what `log/verify` answers, or the error, and once more the report as earlier releases had it."""
    from refold_server.rpc.proof_methods import verify_result

    told: dict[str, object] = msgspec.to_builtins(finding)
    return told if finding.report is None else told | msgspec.to_builtins(verify_result(finding.report))


def finding_lines(finding: VerifyFinding, style: Style) -> Iterator[str]:
    """Say what was found, for a person."""
    report = finding.report
    if report is None:
        yield f"{style.red('unreadable')} {finding.session or '(no id)'}: {whole_line(finding.error or '')}"
        return
    word = "verified" if finding.verified else style.red("DIFFERS ")
    requests = f"{report.equal}/{report.requests} requests"
    if report.inherited:
        requests += f" ({report.inherited} inherited)"
    line = f"{word} {requests}, {report.events} events  {finding.session}"
    if report.not_shipped:
        line += f"  ({report.not_shipped} sent by encoders that this release does not have: the requests match)"
    yield line
    for difference in report.differences[:SHOWN]:
        yield f"  {_position(difference)}: {difference.check}: {whole_line(difference.message)}"
    if (more := len(report.differences) - SHOWN) > 0:
        yield f"  and {more} more"


def _position(difference: Difference) -> str:
    """Say where something differs."""
    if difference.last is not None and difference.last != difference.seq:
        return f"events {difference.seq} to {difference.last}"
    return f"event {difference.seq}" + ("" if difference.turn is None else f" (step {difference.turn}.{difference.step})")
