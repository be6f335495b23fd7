"""The same workspace gives the same prefix: asked again, in another process, place, time zone and locale.

Invariant: The same workspace gives the same prefix, in any process, place, zone and locale.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from refold_server.tools.open_buffers import OpenBuffer
from refold_server.tools.skill_index import SkillFolders
from tests.support.prefixes import EVERY, composed, repository
from tests.support.tool_calls import fill

PROGRAM = """
import anyio, json, sys
from pathlib import Path
from refold_server.tools.skill_index import SkillFolders
from tests.support.prefixes import composed
cwd, own = map(Path, sys.argv[1:])
print(json.dumps(anyio.run(lambda: composed(cwd, shelf=SkillFolders(own)))))
"""

TEXTS = {
    "AGENTS.md": "Root rules: ä\n",
    "ws/CLAUDE.md": "Near rules\n",
    "ws/.agents/skills/b/SKILL.md": "---\nname: bee\ndescription: Buzzes.\n---\n",
    "ws/.agents/skills/broken/SKILL.md": "no",
    "ws/.gitignore": "*.log\n",
    "ws/Z.txt": "",
    "ws/a.txt": "",
    "ws/ä.txt": "",
    "ws/src/x.py": "",
    "ws/x.log": "",
    "own/c/SKILL.md": "---\nname: cat\ndescription: Purrs.\n---\n",
}


def made(root: Path, texts: dict[str, str]) -> Path:
    return fill(repository(root), texts)


def elsewhere(root: Path, cwd: Path, **env: str) -> str:
    """Compose in a process of its own."""
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join([str(Path.cwd()), *sys.path]), **env}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(root / "ws"), str(root / "own")],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-700:]
    return done.stdout


@pytest.mark.anyio
async def test_two_compositions_are_equal_and_so_are_those_of_a_copy_that_was_made_in_another_order(tmp_path: Path) -> None:
    first, second = tmp_path / "one", tmp_path / "another/with a longer path"
    made(first, TEXTS)
    made(second, dict(reversed(TEXTS.items())))
    for file in second.rglob("*"):
        os.utime(file, (0, 0))
    given = await composed(first / "ws", shelf=SkillFolders(first / "own"))
    assert list(given) == ["instructions", "skills", "baseline"]
    assert await composed(first / "ws", shelf=SkillFolders(first / "own")) == given
    assert await composed(second / "ws", shelf=SkillFolders(second / "own")) == given
    assert str(tmp_path) not in str(given)


def test_another_process_says_the_same_whatever_its_zone_locale_hash_seed_and_folder(tmp_path: Path) -> None:
    made(tmp_path / "r", TEXTS)
    one = elsewhere(tmp_path / "r", tmp_path, TZ="Asia/Tokyo", LANG="C", PYTHONHASHSEED="1")
    two = elsewhere(
        tmp_path / "r", tmp_path / "r/ws", TZ="America/Lima", LC_ALL="tr_TR.UTF-8", PYTHONHASHSEED="2", PYTHONUTF8="0"
    )
    assert one == two
    assert "Near rules" in one


class Opened:
    """An editor with one file open."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)

    async def snapshot(self) -> tuple[OpenBuffer, ...]:
        return (OpenBuffer(self._path, "x", 1),)


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["instructions", "skills", "baseline", "editor"])
async def test_each_contributor_can_be_switched_off_by_its_name(tmp_path: Path, name: str) -> None:
    made(tmp_path, TEXTS)
    shelf, buffers = SkillFolders(tmp_path / "own"), Opened(tmp_path / "ws/a.txt")
    every = await composed(tmp_path / "ws", shelf=shelf, buffers=buffers)
    assert list(every) == ["instructions", "skills", "baseline", "editor"]
    others = await composed(tmp_path / "ws", replace(EVERY, **{name: False}), shelf=shelf, buffers=buffers)
    assert others == {key: text for key, text in every.items() if key != name}
