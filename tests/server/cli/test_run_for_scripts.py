"""`refold run` for scripts: a prompt that is not asked twice, rules that answer questions, an exit code for denied calls."""

from __future__ import annotations

from pathlib import Path

import pytest

from refold_protocol.errors import ConfigError
from refold_server.cli.permission_rules import read_rules
from tests.support.commands import Here

FOLDER = "/home/ann/work"


def write(path: str) -> dict[str, object]:
    return {"name": "write_file", "arguments": {"path": path, "content": "new\n"}}


@pytest.fixture
def rules(refold: Here) -> str:
    """Rules that allow writing below docs and deny everything about secrets."""
    path = refold.place.root / "rules.toml"
    path.write_text(
        '[[rules]]\npath = "*secret*"\ndecision = "deny"\n\n[[rules]]\ntool = "write_*"\npath = "docs/*"\ndecision = "allow"\n',
        encoding="utf-8",
    )
    return str(path)


def decisions(refold: Here, session: str) -> list[tuple[str, str]]:
    decided = [event["data"] for event in refold.events(session) if event["type"] == "approval/decided"]
    return [(one["outcome"], one["by"]["name"]) for one in decided]


def test_the_first_rule_that_matches_answers_and_what_none_decides_is_denied_without_a_terminal(
    refold: Here, rules: str
) -> None:
    refold.place.script({"calls": [write("docs/a.md"), write("docs/secret.md"), write("other.md")]}, {"text": "Done."})
    done = refold("run", "go", "--permissions-file", rules)
    assert done.code == 0
    assert (refold.place.workspace / "docs/a.md").read_text(encoding="utf-8") == "new\n"
    assert not (refold.place.workspace / "docs/secret.md").exists()
    assert not (refold.place.workspace / "other.md").exists()
    found = decisions(refold, done.session)
    assert found == [("allowed", "permissions file"), ("denied", "permissions file"), ("denied", "no terminal")]


@pytest.mark.parametrize(
    ("tool", "arguments", "outcome"),
    [
        ("write_file", '{"path":"docs/a.md"}', "allowed"),
        ("write_file", '{"path":"./x/../docs/deep/a.md"}', "allowed"),
        ("write_file", '{"path":"/home/ann/work/docs/a.md"}', "allowed"),
        ("write_file", '{"path":"docs/../../docs/a.md"}', None),
        ("write_file", '{"path":"/docs/a.md"}', None),
        ("write_file", '{"path":7}', None),
        ("write_file", "no object", None),
        ("edit_file", '{"path":"docs/a.md"}', None),
        ("edit_file", '{"path":"docs/secrets/a.md"}', "denied"),
    ],
)
def test_a_rule_is_about_the_path_as_it_is_from_the_folder_on(
    rules: str, tool: str, arguments: str, outcome: str | None
) -> None:
    assert read_rules(rules).outcome(tool, arguments, FOLDER) == outcome


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "missing required field `rules`"),
        ("rules = []", "has no [[rules]]"),
        ('[[rules]]\ndecision = "perhaps"', "perhaps"),
        ('[[rules]]\ndecision = "allow"\ntools = "x"', "tools"),
        ("[[rules", "holds no rules"),
    ],
)
def test_a_file_that_holds_no_rules_is_refused_with_what_is_wrong_and_nothing_runs(
    refold: Here, tmp_path: Path, text: str, said: str
) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(text, encoding="utf-8")
    done = refold("run", "go", "--permissions-file", str(path))
    assert (done.code, done.out) == (2, b"")
    assert said in done.err
    with pytest.raises(ConfigError):
        read_rules(str(path))


@pytest.mark.parametrize("mode", ["ask", "deny"])
def test_denied_calls_have_an_exit_code_of_their_own_where_that_is_asked_for(refold: Here, mode: str) -> None:
    script = ({"calls": [write("a.md")]}, {"text": "Denied."})
    refold.place.script(*script)
    assert refold("run", "go", "--permissions", mode).code == 0
    refold.place.script(*script)
    assert refold("run", "go", "--permissions", mode, "--fail-on-denied").code == 8
    refold.place.script({"calls": [write("a.md"), write("../b.md")]}, {"text": "No tool writes out of the workspace."})
    assert refold("run", "go", "--permissions", "allow", "--fail-on-denied").code == 0


def test_a_prompt_whose_key_was_used_is_not_asked_again_and_its_turn_is_shown(refold: Here) -> None:
    refold.place.script({"calls": [write("a.md")]}, {"text": "One."})
    first = refold("run", "go", "--key", "k-1", "--fail-on-denied")
    assert first.code == 8
    events = refold.events(first.session)
    again = refold("run", "go", "--session", first.session, "--key", "k-1", "--fail-on-denied")
    assert (again.code, again.lines) == (8, first.lines)
    assert "the prompt of that key was run before" in again.err
    assert refold.events(first.session) == events
    assert refold("run", "go", "--session", first.session, "--key", "k-2").code == 0
    assert [event["type"] for event in refold.events(first.session)].count("turn/start") == 2


def test_a_key_with_another_prompt_is_refused(refold: Here) -> None:
    session = refold("run", "go", "--key", "k-1").session
    events = refold.events(session)
    done = refold("run", "stop", "--session", session, "--key", "k-1")
    assert (done.code, done.out) == (2, b"")
    assert "the key 'k-1' was used for another prompt" in done.err
    assert refold.events(session) == events
    for wrong in ("", "x" * 201):
        assert "a key has 1 to 200 characters" in refold("run", "go", "--key", wrong).err
    assert refold("run", "--pending", "--session", session, "--key", "k").code == 2


def test_the_rules_that_are_documented_are_rules(tmp_path: Path) -> None:
    page = Path(__file__).parents[3] / "docs/scripts.md"
    _, block = page.read_text(encoding="utf-8").split("```toml\n")
    path = tmp_path / "rules.toml"
    path.write_text(block.split("```")[0], encoding="utf-8")
    rules = read_rules(str(path))
    found = [rules.outcome("write_file", f'{{"path":"{name}"}}', FOLDER) for name in ("docs/.env", "docs/a.md", "a.md")]
    assert found == ["denied", "allowed", None]
