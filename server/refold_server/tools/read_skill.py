"""The tool `read_skill`: the instructions of a skill that the session's prefix names, or another file of its folder.

A skill is looked for anew at each call, so its text is that of now; names and descriptions in the prefix are those of when
the session was opened. The tool is offered to sessions only in which a skill was found then (`host.py`).
"""

from __future__ import annotations

import os
from difflib import get_close_matches
from typing import Annotated, Final

import anyio.to_thread
from msgspec import Meta, Struct

from refold_protocol.json_text import compact_json
from refold_protocol.session.messages import ToolSchema
from refold_server.tools.skill_index import SKILL_FILE, FrontMatterError, Skill, find_skills, open_in_skill, read_front_matter
from refold_server.tools.text_file import BYTE_ORDER_MARK, is_binary, read_up_to
from refold_server.tools.tool import ToolContext, ToolOutput, text_output
from refold_server.tools.tool_failure import invalid_arguments
from refold_server.tools.tool_output import text_of

READ_SKILL: Final = "read_skill"

MAX_BYTES: Final = 1 << 20
"""Bytes of a file that are read."""


class ReadSkillParams(Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of `read_skill`."""

    name: Annotated[str, Meta(min_length=1, max_length=200)]
    file: Annotated[str, Meta(min_length=1, max_length=1_000)] | None = None


class ReadSkill:
    """The tool."""

    schema = ToolSchema(
        name=READ_SKILL,
        description=(
            "Read a skill: instructions for a kind of task, by the name in the list of skills. Read it before you begin "
            "with such a task. Other files that it speaks of lie in the skill's folder: read them with `file`."
        ),
        parameters=compact_json(
            {
                "type": "object",
                "properties": {
                    "name": {"type": "string", "minLength": 1, "maxLength": 200, "description": "The skill's name."},
                    "file": {
                        "type": "string",
                        "minLength": 1,
                        "maxLength": 1000,
                        "description": "A file of the skill's folder, relative to it. Default: the instructions.",
                    },
                },
                "required": ["name"],
                "additionalProperties": False,
            }
        ),
    )
    read_only = True
    params = ReadSkillParams

    async def run(self, context: ToolContext, params: ReadSkillParams) -> ToolOutput:
        """Read. Raises ToolFailure."""
        return text_output(await anyio.to_thread.run_sync(_read, context, params, abandon_on_cancel=True))


def _read(context: ToolContext, params: ReadSkillParams) -> str:
    skill = _named(context, params.name)
    descriptor = open_in_skill(skill, params.file or SKILL_FILE)
    try:
        data = read_up_to(descriptor, MAX_BYTES)
        if is_binary(data):
            return f"[it is a binary file of {os.fstat(descriptor).st_size:,} bytes; its content is not shown]"
    finally:
        os.close(descriptor)
    text = text_of(data.removeprefix(BYTE_ORDER_MARK))
    if params.file is not None:
        return text
    try:
        return read_front_matter(text).body.strip("\n")
    except FrontMatterError:  # it changed just now; what is there is given as it is
        return text


def _named(context: ToolContext, name: str) -> Skill:
    skills = {skill.name: skill for skill in find_skills(context.workspace.root, context.skills).skills}
    found = skills.get(name)
    if found is None:
        close = get_close_matches(name, skills, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise invalid_arguments(f"there is no skill {name!r}; {hint}the skills are: {', '.join(skills) or 'none'}")
    return found
