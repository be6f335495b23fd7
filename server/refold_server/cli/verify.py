"""Owns `refold verify`: whether logs are whole, and whether each request that was sent follows from them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import AsyncIterator

import anyio
import msgspec
from msgspec import Struct

from refold_protocol.errors import RefoldError, SessionNotFoundError
from refold_protocol.ids import SessionId
from refold_protocol.verify import Report
from refold_server.checks.offline import check_log
from refold_server.cli.exits import COMPLETED, INTERNAL
from refold_server.cli.opened import Opened, opened, read_config
from refold_server.cli.people import Screen, printable
from refold_server.sessions.reading import reading

PAGE = 100
"""Sessions that are read from the catalogue at a time."""

PROGRESS_EVENTS = 20_000
"""Logs longer than this show how far the check is, on a terminal."""


class Finding(Struct, frozen=True, omit_defaults=True):
    """What --json prints for a session: the report, or the error that kept the log from being read."""

    session: SessionId
    verified: bool
    report: Report | None = None
    error: str | None = None


def command(options: argparse.Namespace) -> int:
    """Verify one session or all of them."""
    return anyio.run(_command, options)


async def _command(options: argparse.Namespace) -> int:
    out, aside = Screen(sys.stdout), Screen(sys.stderr)
    whole = True
    checked = 0
    async with opened(read_config(options)) as around:
        async for session in _chosen(around, options.session):
            finding = await _verify(around, session, aside, strict=options.strict)
            whole = whole and finding.verified
            checked += 1
            if options.json:
                out.line(msgspec.json.encode(finding).decode())
            else:
                _show(out, finding)
    if options.all and not options.json:
        out.line(f"{checked} session{'' if checked == 1 else 's'} checked")
    return COMPLETED if whole else INTERNAL


async def _chosen(around: Opened, session: str | None) -> AsyncIterator[SessionId]:
    if session is not None:
        yield SessionId(session)
        return
    cursor = None
    while rows := around.store.recent(limit=PAGE, before=cursor):
        for _, record in rows:
            yield record.id
        cursor = rows[-1][0]


async def _verify(around: Opened, session: SessionId, aside: Screen, *, strict: bool) -> Finding:
    try:
        async with reading(around.sessions, session) as (handle, _):
            shown = handle.tail > PROGRESS_EVENTS and aside.stream.isatty()
            report = await check_log(handle, _progress(aside) if shown else None)
    except SessionNotFoundError:
        raise
    except RefoldError as error:  # a log that cannot be read is a finding; the others are checked all the same
        return Finding(session, False, error=f"{error.error_kind}: {error.message}")
    return Finding(session, report.holds and not (strict and report.not_shipped), report)


def _progress(aside: Screen):  # noqa: ANN202 - a local closure
    def show(done: int, all_events: int) -> None:
        aside.stream.write(f"\r{done * 100 // max(all_events, 1):>3} % of {all_events} events")
        if done == all_events:
            aside.stream.write("\r\x1b[K")
        aside.stream.flush()

    return show


def _show(out: Screen, finding: Finding) -> None:
    report = finding.report
    if report is None:
        out.line(f"{out.red('unreadable')} {finding.session}: {finding.error}")
        return
    word = "verified" if finding.verified else out.red("DIFFERS ")
    line = f"{word} {report.equal}/{report.requests} requests, {report.events} events  {finding.session}"
    if report.not_shipped:
        line += f"  ({report.not_shipped} sent by encoders that this release does not have: the requests match)"
    out.line(line)
    for difference in report.differences:
        step = "" if difference.turn is None else f" (step {difference.turn}.{difference.step})"
        out.line(f"  event {difference.seq}{step}: {difference.check}: {printable(difference.message)}")
