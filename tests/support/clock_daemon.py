"""A real daemon whose clock is a file: `python -m tests.support.clock_daemon FILE` reads Unix epoch milliseconds from it,
each time that anything asks Python for the time of day. The clock that time-outs go by runs as ever.
"""

from __future__ import annotations

import sys
from pathlib import Path
from unittest.mock import patch

from refold_server import boot


def main(file: str) -> int:
    """Serve one client."""

    def now_ns() -> int:
        return int(Path(file).read_text()) * 1_000_000

    with patch("time.time_ns", now_ns), patch("time.time", lambda: now_ns() / 1e9):
        return boot.serve()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
