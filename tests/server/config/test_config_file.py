"""Where a configuration comes from, and which source wins."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from refold_protocol.errors import ConfigError
from refold_server.config_file import MAX_FILE_BYTES, default_config_path, default_store_path, load_config


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home, so that no test sees the configuration of whoever runs it."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name, folder in (("XDG_CONFIG_HOME", "config"), ("XDG_DATA_HOME", "data")):
        monkeypatch.setenv(name, str(tmp_path / folder))
    return tmp_path


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_without_any_file_the_defaults_hold(home: Path) -> None:
    config = load_config(None, {})
    assert config.model == "rehearsal/workspace"
    assert config.store.path == home / "data/refold" == default_store_path()
    assert [row.name for row in config.providers] == ["rehearsal"]
    assert config.providers[0].base_url is None
    assert config.tools.enabled is None
    assert config.limits.steps == 50
    assert not (home / "data").exists(), "reading a configuration makes nothing"


def test_the_file_in_the_platforms_folder_is_read(home: Path) -> None:
    assert default_config_path() == home / "config/refold/config.toml"
    _write(default_config_path(), "limits = {steps = 7}")
    assert load_config(None, {}).limits.steps == 7


def test_a_named_file_stands_in_the_place_of_the_platforms(home: Path) -> None:
    _write(default_config_path(), "limits = {steps = 7}\nlog = {level = 'debug'}")
    by_variable = _write(home / "variable.toml", "limits = {steps = 8}")
    by_option = _write(home / "option.toml", "limits = {steps = 9}")
    environment = {"REFOLD_CONFIG": str(by_variable)}
    assert load_config(None, environment).limits.steps == 8
    assert load_config(None, environment).log.level == "warning", "replaced, not merged"
    assert load_config(by_option, environment).limits.steps == 9
    assert load_config(None, {"REFOLD_CONFIG": ""}).limits.steps == 7


def test_a_named_file_that_is_missing_is_an_error(home: Path) -> None:
    missing = home / "none.toml"
    for given, environment, key in (
        (missing, {}, "--config"),
        (None, {"REFOLD_CONFIG": str(missing)}, "REFOLD_CONFIG"),
    ):
        with pytest.raises(ConfigError, match="does not exist") as caught:
            load_config(given, environment)
        assert caught.value.key == key
        assert caught.value.details["file"] == str(missing)


@pytest.mark.parametrize(
    ("content", "line", "said"),
    [
        (b"\xff", 1, "is not a UTF-8 text file (byte 0xff); save it as UTF-8"),
        (b"\n\nmodel = '\xe9'", 3, "is not a UTF-8 text file (byte 0xe9); save it as UTF-8"),
        ("model = 'a/b'".encode("utf-16"), None, "is not a UTF-8 text file but UTF-16"),
    ],
)
def test_a_file_that_is_not_text_is_an_error(home: Path, content: bytes, line: int | None, said: str) -> None:
    file = home / "bad.toml"
    file.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load_config(file, {})
    assert caught.value.reason.startswith(said)
    assert caught.value.details.get("line") == line


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["plain", "byte-order mark"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"], ids=["LF", "CRLF"])
def test_a_file_is_read_with_a_byte_order_mark_and_with_any_line_ends(home: Path, mark: bytes, end: bytes) -> None:
    file = home / "c.toml"
    file.write_bytes(mark + b"[limits]" + end + b"steps = 7" + end)
    assert load_config(file, {}).limits.steps == 7
    file.write_bytes(mark + b"[limits]" + end + b"steps = 0" + end)
    with pytest.raises(ConfigError) as caught:
        load_config(file, {})
    assert caught.value.details["line"] == 2


def test_a_file_that_is_much_too_large_is_refused(home: Path) -> None:
    file = _write(home / "c.toml", "#" * MAX_FILE_BYTES)
    assert load_config(file, {}).limits.steps == 50
    _write(file, "#" * (MAX_FILE_BYTES + 1))
    with pytest.raises(ConfigError, match="is larger than 1048576 bytes"):
        load_config(file, {})


def test_a_path_that_no_file_can_have_is_an_error() -> None:
    with pytest.raises(ConfigError, match="--config: names a file by a path that no file can have"):
        load_config(Path("a\0b"), {})


def test_a_start_imports_neither_toml_nor_network_nor_tools() -> None:
    program = (
        "import sys, pathlib, refold_server.config_file as c; c.load_config(None, {'REFOLD_CONFIG': ''});"
        "print([name for name in ('tomllib', 'httpx', 'anyio', 'refold_server.tools.registry') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"


def test_a_folder_is_not_a_file(home: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(home, {})


def test_the_clients_options_win_over_the_file_key_by_key(home: Path) -> None:
    file = _write(home / "c.toml", "[limits]\nsteps = 7\n[timeouts]\nconnect_s = 1\ntotal_s = 2\n")
    config = load_config(file, {}, options={"timeouts": {"total_s": 3}, "model": "rehearsal/x"})
    assert (config.timeouts.connect_s, config.timeouts.total_s, config.limits.steps) == (1.0, 3.0, 7)
    assert config.model == "rehearsal/x"


@pytest.mark.parametrize("name", ["providers", "plugins"])
def test_a_client_cannot_name_providers_or_plugins(name: str) -> None:
    """An editor may take its options from the workspace that it shows, and a repository must not move keys."""
    with pytest.raises(ConfigError, match="in the configuration file only") as caught:
        load_config(None, {}, options={name: {}})
    assert caught.value.details["file"] == "initializationOptions"


def test_the_workspace_configures_nothing(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("refold.toml", ".refold.toml", "config.toml", ".refold/config.toml", "refold/config.toml"):
        _write(home / "workspace" / name, "limits = {steps = 1}")
    monkeypatch.chdir(home / "workspace")
    assert load_config(None, {}) == load_config(None, {}, options={})
    assert load_config(None, {}).limits.steps == 50


def test_the_store_is_named_by_option_then_variable_then_client_then_file(home: Path) -> None:
    file = _write(home / "c.toml", "[store]\npath = '/file'\n")
    options, environment = {"store": {"path": "/client"}}, {"REFOLD_STORE": "/variable"}
    assert load_config(file, environment, options=options, store="/option").store.path == Path("/option")
    assert load_config(file, environment, options=options).store.path == Path("/variable")
    assert load_config(file, {"REFOLD_STORE": ""}, options=options).store.path == Path("/client")
    assert load_config(file, {}).store.path == Path("/file")


def test_a_relative_store_is_meant_from_where_the_command_stands(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)
    assert load_config(None, {}, store="here").store.path == home / "here"
    assert load_config(None, {"REFOLD_STORE": "there"}).store.path == home / "there"
    with pytest.raises(ConfigError, match=r"store\.path: .*--store"):
        load_config(None, {}, store="")


def test_a_store_in_the_home_folder_is_written_with_a_tilde(home: Path) -> None:
    file = _write(home / "c.toml", "[store]\npath = '~/logs'\n")
    assert load_config(file, {}).store.path == home / "home/logs"


def test_the_model_of_the_command_line_wins(home: Path) -> None:
    file = _write(home / "c.toml", "model = 'rehearsal/file'")
    assert load_config(file, {}, options={"model": "rehearsal/client"}, model="rehearsal/option").model == "rehearsal/option"
    with pytest.raises(ConfigError, match=r'model: expects "provider/model"; it is \'bare\' \(--model\)'):
        load_config(file, {}, model="bare")
