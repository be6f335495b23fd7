"""A real daemon that names the phase of a running turn every few milliseconds, for tests that would wait long otherwise."""

from __future__ import annotations

import sys
from unittest.mock import patch

from refold_server import boot


def main() -> int:
    """Serve one client."""
    with patch("refold_server.rpc.event_methods.PHASE_SECONDS", 0.005):
        return boot.serve()


if __name__ == "__main__":
    sys.exit(main())
