"""Owns the contributor `skills`: what can be read up with `read_skill`, each by its name and what it is for.

The instructions themselves are not here: a model reads those of a skill that fits. What is wrong with a skill is told here
too, since nobody else would tell the person why it is missing. Bounded in skills and in characters.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import anyio.to_thread

from refold_server.tools.skill_index import Catalogue, SkillFolders, find_skills

MAX_SKILLS: Final = 100
"""Skills that are listed."""

MAX_CHARACTERS: Final = 16_000
"""Characters of names and descriptions that the list has; the skills behind that are counted."""

MAX_TROUBLES: Final = 10
"""Skills that cannot be used of which is told why."""

_HEAD: Final = """\
Skills: instructions for kinds of tasks. When one fits what you are asked to do, read it with read_skill first."""


async def skills(cwd: str, shelf: SkillFolders) -> str | None:
    """Give the list of the skills of the session in `cwd`, None when there are none."""
    return catalogue_text(await anyio.to_thread.run_sync(find_skills, Path(cwd), shelf, abandon_on_cancel=True))


def catalogue_text(catalogue: Catalogue) -> str | None:
    """Write a catalogue; None for an empty one."""
    if not catalogue.skills and not catalogue.troubles:
        return None
    lines = [_HEAD, ""] if catalogue.skills else []
    room = MAX_CHARACTERS
    listed = 0
    for skill in catalogue.skills[:MAX_SKILLS]:
        line = f"- {skill.name}: {skill.description}"
        room -= len(line)
        if room < 0:
            break
        lines.append(line)
        listed += 1
    if left := [skill.name for skill in catalogue.skills[listed:]]:
        lines.append(f"[{len(left)} more are not listed here; they can be read by their names]")
    lines.extend(f"[not a skill that can be read: {trouble}]" for trouble in catalogue.troubles[:MAX_TROUBLES])
    if (more := len(catalogue.troubles) - MAX_TROUBLES) > 0:
        lines.append(f"[and {more} more like these]")
    return "\n".join(lines)
