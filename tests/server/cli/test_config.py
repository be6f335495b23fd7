"""`refold config`: what is in force and where it comes from, faults as fields, and no secret in any output."""

from __future__ import annotations

import json

import pytest

from refold_server.config_docs import schema_text
from tests.support.commands import Here

FILE = """
limits.steps = 7
[providers.local]
dialect = "chat-completions"
base_url = "http://127.0.0.1:8080/v1"
key_env = "THE_KEY"
headers = {x-one = "hush-1"}
options = {include_usage = false}
[providers.other]
dialect = "chat-completions"
base_url = "http://127.0.0.1:8081/v1"
key_command = ["pass", "hush-2"]
[models."local/x"]
context_window = 8192
extra = {token = "hush-3"}
"""


def test_without_a_file_everything_is_built_in(refold: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REFOLD_STORE")
    monkeypatch.delenv("REFOLD_CONFIG")
    monkeypatch.delenv("REFOLD_LIVE_CHECK", raising=False)
    found = json.loads(refold("config", "--json").text)
    assert (found["exists"], found["namedBy"]) == (False, None)
    assert {row["source"] for row in found["settings"]} == {"built-in"}
    values = {row["key"]: row["value"] for row in found["settings"]}
    assert (values["model"], values["limits.steps"], values["tools.enabled"]) == ("rehearsal/workspace", 50, None)


def test_each_value_says_where_it_comes_from(refold: Here) -> None:
    refold.place.configure(FILE)
    rows = {row["key"]: row for row in json.loads(refold("config", "--json").text)["settings"]}
    steps = rows["limits.steps"]
    assert (steps["value"], steps["source"], steps["line"]) == (7, "file", FILE.split("\n").index("limits.steps = 7") + 1)
    assert (rows["store.path"]["source"], rows["store.path"]["name"]) == ("environment", "REFOLD_STORE")
    assert rows["timeouts.total_s"] == {"key": "timeouts.total_s", "source": "built-in", "value": 3600.0}
    assert rows["providers.local.options"]["value"] == {"include_usage": False}
    by_option = {row["key"]: row for row in json.loads(refold("config", "--json", "--store", "here").text)["settings"]}
    assert by_option["store.path"] == {
        "key": "store.path",
        "source": "option",
        "value": str(refold.place.workspace / "here"),
        "name": "--store",
    }


def test_a_person_reads_one_setting_a_line(refold: Here) -> None:
    refold.place.configure(FILE)
    lines = refold("config").lines
    assert [line.split() for line in lines if line.startswith("models.")] == [
        ['models."local/x".context_window', "8192", "file,", "line", "14"],
        ['models."local/x".extra', "(set,", "not", "shown)", "file,", "line", "15"],
    ]
    assert lines[0].startswith("# ")


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_no_secret_is_shown_and_the_name_of_a_variable_only_where_there_is_one(
    refold: Here, form: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    refold.place.configure(FILE)
    done = refold("config", *form)
    assert done.code == 0
    assert "hush" not in done.text
    assert "THE_KEY" not in done.text
    monkeypatch.setenv("THE_KEY", "hush-4")
    done = refold("config", *form)
    assert "THE_KEY" in done.text
    assert "hush" not in done.text


def test_a_fault_is_told_by_its_key_and_as_fields(refold: Here) -> None:
    refold.place.configure("[limits]\nsteps = 0\n")
    done = refold("config", "--json")
    assert done.code == 2
    fault = json.loads(done.text)["fault"]
    assert (fault["key"], fault["line"]) == ("limits.steps", 2)
    assert fault["reason"] == "expects a whole number from 1 to 100000; it is 0"
    assert done.err.startswith("refold: config.invalid: limits.steps: expects a whole number from 1 to 100000; it is 0 (")
    done = refold("config")
    assert (done.code, done.out) == (2, b"")


def test_it_makes_no_store_and_imports_no_plugin(refold: Here) -> None:
    plugin = refold.place.root / "plugin.py"
    plugin.write_text("raise SystemExit(9)\n")
    refold.place.configure(f'plugins.paths = ["{plugin}"]\n')
    assert refold("config").code == 0
    assert not refold.place.store.exists()


def test_the_schema_needs_no_configuration(refold: Here) -> None:
    refold.place.configure("nonsense = ")
    done = refold("config", "--schema")
    assert (done.code, done.text, done.err) == (0, schema_text(), "")
