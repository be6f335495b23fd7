"""The tool `read_skill`: instructions by name, other files of the skill's folder, nothing beyond it; where it is offered."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import anyio
import pytest

from refold_server.config_file import load_config
from refold_server.services import Services
from refold_server.tools.session_tools import built_in_tools
from refold_server.tools.skill_index import SkillFolders, has_skills
from refold_server.tools.tool_runner import ToolAnswer, execute
from tests.support.prefixes import repository
from tests.support.tool_calls import call, code, context, fill, text

pytestmark = pytest.mark.anyio

SKILL = "---\nname: release\ndescription: How to release.\n---\n\n# Release\n\nSee notes.md.\n"


async def read(root: Path, shelf: SkillFolders, **arguments: str) -> ToolAnswer:
    return await execute(built_in_tools(), "read_skill", json.dumps(arguments), context(root, skills=shelf))


async def test_the_instructions_are_given_without_the_front_matter(tmp_path: Path) -> None:
    fill(tmp_path, {".agents/skills/r/SKILL.md": SKILL})
    assert text(await call(tmp_path, "read_skill", name="release")) == "# Release\n\nSee notes.md."


async def test_skills_above_the_session_s_folder_and_the_user_s_own_can_be_read(tmp_path: Path) -> None:
    fill(repository(tmp_path / "r"), {".agents/skills/r/SKILL.md": SKILL, "a/x": ""})
    own = fill(tmp_path / "own", {"mine/SKILL.md": SKILL.replace("release", "mine"), "mine/notes.md": "my notes"})
    shelf = SkillFolders(own)
    assert "# Release" in text(await read(tmp_path / "r/a", shelf, name="release"))
    assert text(await read(tmp_path / "r/a", shelf, name="mine", file="notes.md")) == "my notes"


@pytest.mark.parametrize("file", ["../other/secret.md", "../../../x", "/etc/hostname", "link", "."])
async def test_no_file_outside_of_the_skill_s_folder_is_read(tmp_path: Path, file: str) -> None:
    fill(tmp_path, {".agents/skills/r/SKILL.md": SKILL, ".agents/skills/other/secret.md": "secret", "x": "secret"})
    os.symlink("../other/secret.md", tmp_path / ".agents/skills/r/link")
    answer = await call(tmp_path, "read_skill", name="release", file=file)
    assert code(answer) in ("DENIED", "TOOL_FAILED")
    assert "secret" not in text(answer).replace("secret.md", "")


async def test_an_unknown_name_is_told_with_those_that_are_known(tmp_path: Path) -> None:
    answer = await call(tmp_path, "read_skill", name="release")
    assert text(answer) == "there is no skill 'release'; the skills are: none"
    fill(tmp_path, {".agents/skills/r/SKILL.md": SKILL})
    answer = await call(tmp_path, "read_skill", name="relaese")
    assert (code(answer), text(answer)) == (
        "INVALID_ARGUMENTS",
        "there is no skill 'relaese'; did you mean 'release'? the skills are: release",
    )


async def test_a_binary_file_is_not_shown(tmp_path: Path) -> None:
    fill(tmp_path, {".agents/skills/r/SKILL.md": SKILL, ".agents/skills/r/logo.png": b"\x89PNG\0"})
    assert text(await call(tmp_path, "read_skill", name="release", file="logo.png")) == (
        "[it is a binary file of 5 bytes; its content is not shown]"
    )


async def test_the_tool_is_offered_where_a_skill_is_and_this_is_decided_once_per_instance(tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text(f'[prefix]\nskills_folder = "{tmp_path}/own"\n')
    shared = Services(load_config(config, {}, store=str(tmp_path)))
    bare = fill(tmp_path / "ws", {"a": ""})
    host = shared.host(str(bare))
    assert "read_skill" not in [tool.name for tool in await host.tools()]
    fill(bare, {".agents/skills/r/SKILL.md": SKILL})
    assert "read_skill" not in [tool.name for tool in await host.tools()], "as the list of skills, for this instance"
    assert [tool.name for tool in await shared.host(str(bare)).tools()][-1] == "read_skill"


async def test_folders_are_looked_through_off_the_event_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []

    def look(cwd: Path, shelf: SkillFolders) -> bool:
        threads.append(threading.get_ident())
        return has_skills(cwd, shelf)

    monkeypatch.setattr("refold_server.services.has_skills", look)
    ws = fill(tmp_path / "ws", {".agents/skills/r/SKILL.md": SKILL})
    config = tmp_path / "c.toml"
    config.write_text("")
    host = Services(load_config(config, {}, store=str(tmp_path))).host(str(ws))
    with anyio.CancelScope() as scope:
        scope.cancel()
        await host.tools()
    assert [tool.name for tool in await host.tools()][-1] == "read_skill", "a turn that was cancelled meanwhile decides nothing"
    assert threads
    assert threading.get_ident() not in threads


async def test_it_is_not_offered_where_skills_are_switched_off_or_it_is_not_enabled(tmp_path: Path) -> None:
    ws = fill(tmp_path / "ws", {".agents/skills/r/SKILL.md": SKILL})
    for settings in ("[prefix]\nskills = false\n", '[tools]\nenabled = ["read_file"]\n'):
        config = tmp_path / "c.toml"
        config.write_text(settings)
        host = Services(load_config(config, {}, store=str(tmp_path))).host(str(ws))
        assert "read_skill" not in [tool.name for tool in await host.tools()]
