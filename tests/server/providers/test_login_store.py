"""A key that `refold login` was given lies in the keyring, or in a file that only its owner can read."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from refold_protocol.errors import ConfigError
from refold_server.providers.login_store import LoginStore

pytestmark = pytest.mark.anyio

KEY = "sk-of-the-house-01234567"


class Ring:
    """A keyring in memory; `priority` is how good its library finds it, below 1 for none at all."""

    def __init__(self, priority: float = 5, *, locked: bool = False) -> None:
        self.priority = priority
        self.locked = locked
        self.rows: dict[tuple[str, str], str] = {}

    def install(self, patch: pytest.MonkeyPatch) -> Ring:
        module: Any = ModuleType("keyring")
        module.get_keyring = lambda: self
        module.set_password = self.set
        module.get_password = self.get
        module.delete_password = self.delete
        patch.setitem(sys.modules, "keyring", module)
        return self

    def get(self, service: str, name: str) -> str | None:
        return self.rows.get((service, name))

    def delete(self, service: str, name: str) -> None:
        del self.rows[service, name]

    def set(self, service: str, name: str, key: str) -> None:
        if self.locked:
            raise RuntimeError("locked")
        self.rows[service, name] = key


@pytest.fixture
def store(tmp_path: Path) -> LoginStore:
    return LoginStore(tmp_path / "new" / "logins.json")


@pytest.fixture(autouse=True)
def no_keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)  # pyright: ignore[reportArgumentType] - as if it were not installed


async def test_without_a_login_there_is_no_key_and_no_file(store: LoginStore) -> None:
    assert await store.key("house") is None
    assert store.providers() == ()
    assert not store.path.exists()


async def test_without_a_keyring_the_key_lies_in_a_file_of_its_owners(store: LoginStore) -> None:
    assert store.add("house", KEY) == str(store.path)
    assert store.path.stat().st_mode & 0o777 == 0o600
    assert await store.key("house") == KEY
    assert [path.name for path in store.path.parent.iterdir()] == [store.path.name]


async def test_a_keyring_takes_the_key_and_the_file_says_only_that(store: LoginStore, monkeypatch: pytest.MonkeyPatch) -> None:
    ring = Ring().install(monkeypatch)
    assert store.add("house", KEY) == "the system's keyring"
    assert KEY not in store.path.read_text()
    assert await store.key("house") == KEY
    assert store.remove("house")
    assert ring.rows == {}


@pytest.mark.parametrize("ring", [Ring(0), Ring(locked=True)], ids=["none there", "locked"])
async def test_a_keyring_that_takes_nothing_leaves_the_key_to_the_file(
    ring: Ring, store: LoginStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    ring.install(monkeypatch)
    assert store.add("house", KEY) == str(store.path)
    assert await store.key("house") == KEY


async def test_a_login_is_forgotten_and_others_stay(store: LoginStore) -> None:
    store.add("house", KEY)
    store.add("other", "sk-other")
    assert (store.remove("house"), store.remove("house")) == (True, False)
    assert (store.providers(), await store.key("other")) == (("other",), "sk-other")


@pytest.mark.parametrize(
    ("mode", "text", "said"), [(0o644, "{}", "by others"), (0o600, "{", "no JSON"), (0o600, "[]", "table")]
)
async def test_a_file_that_others_can_read_or_that_is_broken_is_refused(
    mode: int, text: str, said: str, store: LoginStore
) -> None:
    store.path.parent.mkdir()
    store.path.write_text(text)
    store.path.chmod(mode)
    with pytest.raises(ConfigError, match=said):
        await store.key("house")
