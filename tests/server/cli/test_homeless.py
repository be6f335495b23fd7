"""A user without a home folder, as in containers that run under a bare number: what has no place says what to set."""

from __future__ import annotations

from typing import Any

import platformdirs
import pytest

from refold_protocol.errors import ConfigError
from refold_server.config_file import default_config_path, default_store_path, load_config
from tests.support.commands import Here


def homeless(*given: Any, **more: Any) -> Any:
    raise RuntimeError("could not determine the home directory")


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the platform know no folder of the user's."""
    monkeypatch.setattr(platformdirs, "user_config_path", homeless)
    monkeypatch.setattr(platformdirs, "user_data_path", homeless)


def test_what_nothing_names_says_what_to_set(nowhere: None) -> None:
    with pytest.raises(ConfigError, match=r"no home folder.*REFOLD_CONFIG"):
        default_config_path()
    with pytest.raises(ConfigError, match=r"no home folder.*REFOLD_STORE"):
        default_store_path()


def test_what_is_named_is_taken(nowhere: None, tmp_path: Any) -> None:
    (tmp_path / "c.toml").write_text("")
    config = load_config(None, {"REFOLD_CONFIG": str(tmp_path / "c.toml"), "REFOLD_STORE": str(tmp_path / "store")})
    assert config.store.path == tmp_path / "store"


def test_help_is_shown_all_the_same(nowhere: None, refold: Here) -> None:
    done = refold("run", "--help")
    assert done.code == 0
    assert "this user has no home folder" in done.text
