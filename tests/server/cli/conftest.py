"""Fixtures of the command line's tests: a place of its own for each, and commands in this process."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.commands import Here
from tests.support.daemons import Place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A store, a workspace and a configuration of the test's own."""
    return Place(tmp_path)


@pytest.fixture
def refold(place: Place, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Here:
    """Commands in this process."""
    return Here(place, capfd, monkeypatch)
