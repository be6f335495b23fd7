"""The contributor `skills` and the finding behind it: names and purposes, nothing else, and what is wrong with some."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from refold_server.config import PrefixConfig
from refold_server.prefix.contributors import MAX_CHARACTERS, MAX_SKILLS, catalogue_text
from refold_server.tools import skill_index as module
from refold_server.tools.skill_index import MAX_DESCRIPTION, Catalogue, Skill, SkillFolders, find_skills, has_skills
from refold_server.tools.workspace_path import ROOT, Workspace
from tests.support.prefixes import composed, repository
from tests.support.tool_calls import fill

pytestmark = pytest.mark.anyio

ONLY = PrefixConfig(instructions=False, baseline=False, editor=False)


def skill(name: str, description: str = "Use it.", body: str = "body") -> str:
    return f"---\nname: {name}\ndescription: {description}\n---\n{body}\n"


async def told(cwd: Path, own: Path | None = None) -> list[str]:
    """Give the lines behind the first, the empty one left out."""
    text = (await composed(cwd, ONLY, shelf=SkillFolders(own, None))).get("skills")
    return [] if text is None else [line for line in text.split("\n") if line.startswith(("- ", "["))]


async def test_skills_of_the_folder_of_those_above_and_of_the_user_are_listed_by_name(tmp_path: Path) -> None:
    root = repository(tmp_path / "r")
    fill(root, {".agents/skills/z/SKILL.md": skill("zeta", "Root."), "a/.claude/skills/m/SKILL.md": skill("mid", "Near.")})
    own = fill(tmp_path / "own", {"alpha/SKILL.md": skill("alpha", "Mine."), "README.md": "no skill", "empty/x": ""})
    assert await told(root / "a", own) == ["- alpha: Mine.", "- mid: Near.", "- zeta: Root."]
    assert await told(root, own) == ["- alpha: Mine.", "- zeta: Root."]
    text = (await composed(root / "a", ONLY, shelf=SkillFolders(own)))["skills"]
    assert "body" not in text
    assert str(tmp_path) not in text


async def test_of_two_of_a_name_the_nearest_counts_and_the_user_s_own_last(tmp_path: Path) -> None:
    root = repository(tmp_path / "r")
    own = fill(tmp_path / "own", {"x/SKILL.md": skill("same", "Mine."), "y/SKILL.md": skill("other", "Mine too.")})
    fill(root, {".agents/skills/x/SKILL.md": skill("same", "Root."), "a/b": ""})
    assert await told(root / "a", own) == ["- other: Mine too.", "- same: Root."]
    fill(root, {"a/.claude/skills/q/SKILL.md": skill("same", "Near.")})
    assert (await told(root / "a", own))[1] == "- same: Near."
    fill(root, {"a/.agents/skills/q/SKILL.md": skill("same", "Nearest.")})
    assert (await told(root / "a", own))[1] == "- same: Nearest."


async def test_without_skills_there_is_no_message(tmp_path: Path) -> None:
    assert await told(tmp_path, tmp_path / "gone") == []
    fill(tmp_path, {".agents/skills/README.md": "x", ".agents/skills/empty/x": ""})
    assert await told(tmp_path) == []
    assert not has_skills(tmp_path, SkillFolders())


async def test_what_is_wrong_with_a_skill_is_told(tmp_path: Path) -> None:
    folder = ".agents/skills"
    fill(
        tmp_path,
        {
            f"{folder}/a/SKILL.md": "no front matter",
            f"{folder}/b/SKILL.md": skill("two words"),
            f"{folder}/c/SKILL.md": "---\nname: x\n---\n",
            f"{folder}/d/SKILL.md": "---\nname: &a [*a]\n---\n",
            f"{folder}/e/SKILL.md": "---\n" + "x: y\n" * 5_000,
            f"{folder}/f/SKILL.md/x": "",
            f"{folder}/good/SKILL.md": skill("good"),
        },
    )
    lines = await told(tmp_path)
    assert lines[0] == "- good: Use it."
    assert [line.split(": ", 2)[1] for line in lines[1:]] == [f"{folder}/{name}" for name in "abcdef"]
    assert lines[1].endswith(f"{folder}/a: it does not begin with a line ---]")
    assert has_skills(tmp_path, SkillFolders())


async def test_a_link_out_of_the_repository_is_not_followed_and_told(tmp_path: Path) -> None:
    root = repository(tmp_path / "r")
    fill(tmp_path, {"out/SKILL.md": skill("out"), "out/more/in/SKILL.md": skill("in"), "r/shared/SKILL.md": skill("shared")})
    (root / ".agents/skills/own").mkdir(parents=True)
    os.symlink(tmp_path / "out", root / ".agents/skills/folder")
    os.symlink(tmp_path / "out/SKILL.md", root / ".agents/skills/own/SKILL.md")
    os.symlink("../../shared", root / ".agents/skills/within")
    (root / ".claude").mkdir()
    os.symlink(tmp_path / "out/more", root / ".claude/skills")
    lines = await told(root)
    assert lines[0] == "- shared: Use it."
    assert len(lines) == 4
    assert all("leads out of" in line for line in lines[1:])


async def test_the_first_ones_of_a_large_folder_are_looked_at_and_a_huge_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_SKILLS", 3)
    monkeypatch.setattr(module, "MAX_LISTED", 5)
    fill(tmp_path, {f".agents/skills/s{number}/SKILL.md": skill(f"s{number}") for number in range(5)})
    assert await told(tmp_path) == [
        *(f"- s{number}: Use it." for number in range(3)),
        "[not a skill that can be read: .agents/skills: only the first 3 of its 5 entries were looked at]",
    ]
    fill(tmp_path, {".agents/skills/s5/x": ""})
    (line,) = await told(tmp_path)
    assert "has more than 5 entries" in line


def named(number: int, description: str = "d") -> Skill:
    return Skill(f"s{number:04}", description, Workspace(Path("/")), ROOT)


def test_the_list_has_bounds_and_says_how_many_are_not_in_it() -> None:
    text = catalogue_text(Catalogue(tuple(named(number) for number in range(MAX_SKILLS + 7))))
    assert text is not None
    assert text.endswith("[7 more are not listed here; they can be read by their names]")
    long = catalogue_text(Catalogue(tuple(named(number, "d" * MAX_DESCRIPTION) for number in range(50))))
    assert long is not None
    assert len(long) < MAX_CHARACTERS + 300
    many = catalogue_text(Catalogue((), tuple(f"trouble {number}" for number in range(12))))
    assert many is not None
    assert many.endswith("[and 2 more like these]")


def test_a_description_is_one_line_of_bounded_length(tmp_path: Path) -> None:
    fill(
        tmp_path,
        {".agents/skills/a/SKILL.md": skill("a", "x" * 3_000), ".agents/skills/b/SKILL.md": skill("b", "one\u2028two\x07")},
    )
    first, second = find_skills(tmp_path, SkillFolders()).skills
    assert (len(first.description), first.description[-1]) == (MAX_DESCRIPTION, "…")
    assert second.description in ("one\ufffdtwo\ufffd", "one two\ufffd")
