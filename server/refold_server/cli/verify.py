"""Owns `refold verify`: whether logs are whole, and whether each request that was sent follows from them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial

import msgspec
from msgspec import Struct

from refold_protocol.errors import RefoldError, SessionNotFoundError
from refold_protocol.ids import SessionId
from refold_protocol.verify import Difference, Report
from refold_server.checks.offline import check_log
from refold_server.cli.exits import COMPLETED, INTERNAL
from refold_server.cli.interrupts import run_reading
from refold_server.cli.opened import Opened, opened, read_config
from refold_server.cli.people import printable
from refold_server.cli.screen import Look, Screen
from refold_server.sessions.reading import examining

PROGRESS_EVENTS = 20_000
"""Logs longer than this show how far the check is, on a terminal."""


SHOWN = 40
"""Differences of one session that a person is told; --json has them all."""


class Finding(Struct, frozen=True, omit_defaults=True):
    """What --json prints for a session: the report, or the error that kept the log from being read. `session` is None
    where not even its record could be read."""

    session: SessionId | None
    verified: bool
    report: Report | None = None
    error: str | None = None


def command(options: argparse.Namespace) -> int:
    """Verify one session or all of them."""
    return run_reading(partial(_command, options))


async def _command(options: argparse.Namespace) -> int:
    out, aside = Screen(sys.stdout), Screen(sys.stderr, vital=False)
    checked, wrong = 0, 0
    async with opened(read_config(options)) as around:
        for chosen in _all(around) if options.all else [SessionId(options.session)]:
            try:
                finding = await _verify(around, chosen, aside, strict=options.strict)
            except SessionNotFoundError:
                if not options.all:
                    raise
                continue  # somebody deleted it meanwhile
            checked += 1
            wrong += not finding.verified
            if options.json:
                out.put_bytes(msgspec.json.encode(finding) + b"\n")
            else:
                for line in finding_lines(finding, out.look):
                    out.line(line)
            out.flush()
    if options.all and not options.json:
        out.line(f"{checked} session{'' if checked == 1 else 's'} checked" + (f", {wrong} not verified" if wrong else ""))
    return INTERNAL if wrong else COMPLETED


def _all(around: Opened) -> list[SessionId | RefoldError]:
    """Give the sessions of the store, the latest first (ids sort by age), then what is wrong with unreadable records."""
    found = list(around.store.survey())
    ids = [one for one in found if not isinstance(one, RefoldError)]
    return [*sorted(ids, reverse=True), *(one for one in found if isinstance(one, RefoldError))]


async def _verify(around: Opened, session: SessionId | RefoldError, aside: Screen, *, strict: bool) -> Finding:
    if isinstance(session, RefoldError):
        return Finding(None, False, error=f"{session.error_kind}: {session.message}")
    try:
        async with examining(around.sessions, session) as handle:
            with progress(aside, handle.tail + 1) as told:
                report = await check_log(handle, told)
    except SessionNotFoundError:
        raise
    except RefoldError as error:  # a log that cannot be read is a finding; the others are checked all the same
        return Finding(session, False, error=f"{error.error_kind}: {error.message}")
    return Finding(session, report.holds and not (strict and report.not_shipped), report)


@contextmanager
def progress(aside: Screen, all_events: int) -> Generator[Callable[[int, int], None] | None]:
    """Give what tells how far a check is, None where nobody looks or it is over soon; leave the line empty at the end."""
    if all_events <= PROGRESS_EVENTS or not aside.terminal:
        yield None
        return
    try:
        yield lambda done, of: aside.put(f"\r{done * 100 // max(of, 1):>3} % of {of} events", now=True)
    finally:
        aside.put("\r\x1b[K", now=True)


def finding_lines(finding: Finding, look: Look) -> Iterator[str]:
    """Say what was found, for a person."""
    report = finding.report
    if report is None:
        yield f"{look.red('unreadable')} {finding.session or '(no id)'}: {printable(finding.error or '')}"
        return
    word = "verified" if finding.verified else look.red("DIFFERS ")
    line = f"{word} {report.equal}/{report.requests} requests, {report.events} events  {finding.session}"
    if report.not_shipped:
        line += f"  ({report.not_shipped} sent by encoders that this release does not have: the requests match)"
    yield line
    for difference in report.differences[:SHOWN]:
        yield f"  {place(difference)}: {difference.check}: {printable(difference.message)}"
    if (more := len(report.differences) - SHOWN) > 0:
        yield f"  and {more} more"


def place(difference: Difference) -> str:
    """Say where something differs."""
    if difference.last is not None and difference.last != difference.seq:
        return f"events {difference.seq} to {difference.last}"
    return f"event {difference.seq}" + ("" if difference.turn is None else f" (step {difference.turn}.{difference.step})")
