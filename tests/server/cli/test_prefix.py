"""`refold prefix`: a table of contributors, the text itself, everything for programs; of a session or of a folder."""

from __future__ import annotations

from tests.support.commands import Here
from tests.support.tool_calls import fill


def test_the_current_folder_is_shown_as_a_table_without_a_store(refold: Here) -> None:
    fill(refold.place.workspace, {"AGENTS.md": "Be kind.\n"})
    done = refold("prefix")
    assert (done.code, done.err) == (0, "")
    heading, *rows, whole, last = done.lines
    assert heading.split() == ["contributor", "messages", "bytes", "tokens", "sha256"]
    assert [row.split()[:2] for row in rows] == [
        ["refold:instructions", "1"],
        ["refold:baseline", "1"],
        ["refold:skills", "0"],
        ["refold:editor", "0"],
    ]
    assert rows[-1].split()[2:] == ["0", "0", "-"]
    assert whole.split()[:2] == ["all", "2"]
    assert last == "A session that is opened now begins each request with it."
    assert not refold.place.store.exists()


def test_the_text_is_printed_where_it_is_asked_for(refold: Here) -> None:
    fill(refold.place.workspace, {"AGENTS.md": "Be kind.\n"})
    lines = refold("prefix", "--show").lines
    assert lines[0] == "refold:instructions, user"
    assert "Be kind." in lines
    assert "animals.txt" in lines


def test_another_folder_is_shown_and_a_wrong_one_named(refold: Here) -> None:
    other = fill(refold.place.root / "other", {"AGENTS.md": "Be brief.\n"})
    assert "Be brief." in refold("prefix", "--cwd", str(other), "--show").lines
    assert "Be brief." in refold("prefix", "--cwd", "../other", "--show").lines
    done = refold("prefix", "--cwd", "nowhere")
    assert (done.code, done.out) == (2, b"")
    assert "there is no folder" in done.err


def test_a_session_is_compared_with_its_last_request_and_left_as_it_is(refold: Here) -> None:
    session = refold("run", "Where is the zebra?").session
    before = refold.events(session)
    assert refold("prefix", session).lines[-1].endswith("it is the same as its last request.")
    fill(refold.place.workspace, {"AGENTS.md": "Be kind.\n"})
    assert refold("prefix", session).lines[-1].endswith("it is another one than that of its last request.")
    assert refold.events(session) == before


def test_programs_get_what_prefix_compose_gives(refold: Here) -> None:
    session = refold("run", "Where is the zebra?").session
    (value,) = refold("prefix", session, "--json").values
    (header,) = (event["data"]["header"] for event in refold.events(session) if event["type"] == "request/header")
    assert (value["composed"], value["recorded"]) == (False, True)
    (row,) = (row for row in value["contributors"] if "messages" in row)
    assert row["messages"] == header["messagePrefix"]
    assert (row["plugin"], row["contributor"]) == ("refold", "baseline")
    assert (row["sha256"], row["bytes"]) == (value["sha256"], value["bytes"])
    (bare,) = refold("prefix", "--json").values
    assert "recorded" not in bare


def test_a_plugin_s_contribution_stands_behind_and_its_failure_is_told(refold: Here) -> None:
    plugin = refold.place.root / "loud.py"
    plugin.write_text(
        "from refold_protocol.session.messages import Message, text_content\n"
        "from refold_server.plugins import SESSION_PREFIX\n"
        "async def loud(composing, rest):\n"
        "    return [Message('user', text_content('LOUD')), *await rest()]\n"
        "async def broken(composing, rest):\n"
        "    raise ValueError('no words')\n"
        "def register(registry):\n"
        "    print('never on the output')\n"
        "    registry.on(SESSION_PREFIX, loud)\n"
        "    registry.on(SESSION_PREFIX, broken)\n"
    )
    refold.place.configure(f'[plugins]\npaths = ["{plugin}"]\n')
    done = refold("prefix")
    assert done.code == 0
    assert [row.split()[0] for row in done.lines[1:3]] == ["refold:baseline", "loud:loud"]
    assert "The plugin 'loud' failed at agent/session-prefix: ValueError: no words." in done.err
    assert "never on the output" not in done.text
