"""A command whose standard error nobody reads: what it logs never makes it wait."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.support.daemons import Place

LOGS = """
import logging
from refold_server.cli.command_context import _log_to_stderr
_log_to_stderr("WARNING")
for number in range(5_000):
    logging.getLogger("x").warning("%d %s", number, "word " * 100)
print("done", flush=True)
"""


def test_log_lines_that_nobody_reads_are_left_out_and_counted(place: Place) -> None:
    reader, writer = os.pipe()
    with subprocess.Popen([sys.executable, "-c", LOGS], env=place.env, stdout=subprocess.PIPE, stderr=writer) as process:
        os.close(writer)
        assert process.stdout is not None
        assert process.stdout.readline() == b"done\n"
        assert process.wait(30) == 0
    with os.fdopen(reader, "rb") as errors:
        assert errors.readline().startswith(b"refold: WARNING: x: 0 word")
