"""The lock files fit pyproject.toml and each other, pin everything by hash, and name no registry and no path.

Invariant: Lock files pin every release by hash and name no registry.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
LOCKS = ("runtime", "dev")


def _text(lock: str) -> str:
    return (ROOT / "requirements" / f"{lock}.txt").read_text(encoding="utf-8")


def _entries(lock: str) -> list[str]:
    return [entry for entry in re.split(r"\n(?=\S)", _text(lock).strip()) if entry]


def _pins(lock: str) -> dict[str, set[str]]:
    pins: dict[str, set[str]] = {}
    for entry in _entries(lock):
        pin = Requirement(entry.partition(" \\\n")[0])
        (version,) = (part.version for part in pin.specifier)
        pins.setdefault(canonicalize_name(pin.name), set()).add(version)
    return pins


def _wanted(*extras: str) -> Iterable[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for row in (*project["dependencies"], *(row for extra in extras for row in project["optional-dependencies"][extra])):
        yield Requirement(row)


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_file_pins_one_exact_release_with_hashes_in_every_entry(lock: str) -> None:
    entries = _entries(lock)
    assert len(entries) > 10
    for entry in entries:
        head, _, hashes = entry.partition(" \\\n")
        assert re.fullmatch(r"[a-z0-9._-]+==[^\s*]+( ; .+)?", head)
        assert all(re.fullmatch(r" {4}--hash=sha256:[0-9a-f]{64}( \\)?", line) for line in hashes.split("\n"))


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_file_names_no_address_and_no_path(lock: str) -> None:
    text = _text(lock)
    assert "://" not in text
    assert " @ " not in text
    assert "/" not in text
    assert not re.search(r"^\s*(-i|-f|-e|-c|-r|--(?!hash=))", text, re.MULTILINE)


@pytest.mark.parametrize(("lock", "extras"), [("runtime", ("build",)), ("dev", ("build", "dev"))])
def test_a_lock_file_satisfies_what_the_project_asks_for(lock: str, extras: tuple[str, ...]) -> None:
    pins = _pins(lock)
    for wanted in _wanted(*extras):
        name = canonicalize_name(wanted.name)
        assert name in pins, f"{name} is not locked: make lock"
        assert all(wanted.specifier.contains(version) for version in pins[name]), f"{name}: make lock"


def test_both_lock_files_name_the_same_releases() -> None:
    runtime, dev = _pins("runtime"), _pins("dev")
    assert {name: dev.get(name) for name in runtime} == runtime
