"""Owns `refold serve` with options; without any, `main.py` goes the shorter way."""

from __future__ import annotations

import argparse

from refold_server.boot import serve


def command(options: argparse.Namespace) -> int:
    """Serve one client over standard input and output."""
    return serve((options.store or "", options.config or ""))
