"""A real daemon that waits half a second for the disk, where others wait half a minute."""

from __future__ import annotations

import sys
from unittest.mock import patch

from refold_server import boot
from refold_storage.lmdb_store import open_store

SECONDS = 0.5


def main() -> int:
    """Serve one client."""
    with patch.dict(open_store.__kwdefaults__, flush_seconds=SECONDS):
        return boot.serve()


if __name__ == "__main__":
    sys.exit(main())
