"""What holds for every test: the event loop of asynchronous tests, and how hypothesis looks for examples.

A time limit per example would be a timing assertion, so there is none; pytest's own time-out ends what hangs. In CI the
examples are the same in each run; elsewhere they are drawn anew, which is how new ones are found. `HYPOTHESIS_PROFILE=thorough`
draws twenty times as many.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("dev", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("dev"), derandomize=True, print_blob=True)
settings.register_profile("thorough", settings.get_profile("dev"), max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "dev"))


@pytest.fixture
def anyio_backend() -> str:
    """Asynchronous tests run on asyncio's loop, the one that the daemon uses."""
    return "asyncio"
