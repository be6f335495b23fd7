"""The command `refold rebuild`."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING

from refold_protocol.ids import SessionId
from refold_server.cli.command_line import add_session, add_store
from refold_server.cli.exit_codes import COMPLETED, INTERNAL, STORE_CODES
from refold_server.cli.terminal import OutputStream, standard_error, standard_output

if TYPE_CHECKING:
    from refold_server.requests.offline_check import RebuiltRequest

SUMMARY = "print the exact body of a request, rebuilt from the log"
DESCRIPTION = """Print the exact body of the request of a step, rebuilt from the log, without a line break after it: piped
into an HTTP client it is the request that was sent."""
EXIT_CODES = STORE_CODES | {INTERNAL: "the body differs from what was sent; or internal error, output that cannot be written"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_session(parser)
    parser.add_argument(
        "request",
        metavar="TURN.STEP",
        type=request_name,
        help="which request, for example 1.2; compact:SEQ for the one of a compaction, whose compact/start is event SEQ",
    )
    add_store(parser)


async def run(options: argparse.Namespace) -> int:
    """Print the body, and nothing else, on standard output."""
    from refold_server.cli.command_context import open_context, read_config
    from refold_server.requests.offline_check import rebuilt_request, rebuilt_summary
    from refold_server.sessions.session_views import reading

    request: tuple[int, int] | int = options.request
    async with (
        open_context(read_config(options)) as context,
        reading(context.sessions, SessionId(options.session)) as (handle, _),
    ):
        rebuilt = await (rebuilt_summary(handle, request) if isinstance(request, int) else rebuilt_request(handle, *request))
    out = standard_output()
    out.put_bytes(rebuilt.body)
    out.flush()
    return _judge(rebuilt, standard_error())


def request_name(text: str) -> tuple[int, int] | int:
    """Read `TURN.STEP`, or `compact:SEQ` as the seq of a compaction's start. Raises ArgumentTypeError."""
    found = re.fullmatch(r"compact:(\d{1,18})", text, re.ASCII)
    if found is not None:
        return int(found[1])
    if text.startswith("compact"):
        raise argparse.ArgumentTypeError(f"{text!r} is not compact:SEQ, the number of a compact/start event after the colon")
    found = re.fullmatch(r"([1-9]\d{0,8})\.([1-9]\d{0,8})", text, re.ASCII)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not TURN.STEP, for example 1.2 (both count from 1)")
    return int(found[1]), int(found[2])


def _judge(rebuilt: RebuiltRequest, err: OutputStream) -> int:
    """Say whether the body is the one that was sent, and give the exit code."""
    recorded = rebuilt.recorded
    if rebuilt.verdict == "equal":
        return COMPLETED
    if rebuilt.verdict == "unshipped":
        err.line(
            f"refold: it was sent by {recorded.encoder.name} {recorded.encoder.version}, which this release does not have; "
            "the request is the same, its bytes may differ"
        )
        return COMPLETED
    red = err.style.red("refold: digest.mismatch")
    err.line(f"{red}: the log says that a body with SHA-256 {recorded.sha256} was sent; this one has {rebuilt.sha256}")
    return INTERNAL
