"""Fixture of tests of whole daemons and commands against the engine: a place of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.daemons import Place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A store that does not exist yet, a workspace with one file, an empty configuration."""
    return Place(tmp_path)
