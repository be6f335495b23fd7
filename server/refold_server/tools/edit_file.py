"""The tool `edit_file`: one passage of a text file, or every one that is the same, and what takes its place.

The passage is looked for in the text as it is now, and must be there once, so that an edit never lands elsewhere than meant.
"""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Final

import anyio.to_thread
from msgspec import Meta, Struct

from refold_protocol.json_text import compact_json
from refold_protocol.session.messages import ToolSchema
from refold_server.tools.text_change import Change, changeable, present_text, proposal
from refold_server.tools.text_file import MAX_TEXT
from refold_server.tools.text_match import Lines, hint, seen_form
from refold_server.tools.tool import Proposal, ToolContext, ToolOutput
from refold_server.tools.tool_failure import ToolFailure, invalid_arguments
from refold_server.tools.workspace_path import WorkspacePath

_MAX_TOLD: Final = 10
"""Lines that are named where a passage is there several times."""


_MAX_PLACES: Final = 100_000
"""Places that one edit changes: each costs time and memory."""


class EditFileParams(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Arguments of `edit_file`."""

    path: Annotated[str, Meta(min_length=1)]
    old: str
    new: str
    replace_all: bool = False


class EditFile:
    """The tool."""

    schema = ToolSchema(
        name="edit_file",
        description=(
            "Replace text in a text file of the workspace. The text `old` must stand in the file exactly once, white space "
            "included and without line numbers; give lines around it where it would stand there several times."
        ),
        parameters=compact_json(
            {
                "type": "object",
                "properties": {
                    "path": {
                        "type": "string",
                        "minLength": 1,
                        "description": "The file to edit, relative to the workspace.",
                    },
                    "old": {"type": "string", "description": "The text to replace, exactly as it stands in the file."},
                    "new": {"type": "string", "description": "What takes its place; empty to delete it."},
                    "replaceAll": {
                        "type": "boolean",
                        "description": "Replace every place where the text stands. Default: false.",
                    },
                },
                "required": ["path", "old", "new"],
                "additionalProperties": False,
            }
        ),
    )
    read_only = False
    params = EditFileParams

    async def propose(self, context: ToolContext, params: EditFileParams) -> Proposal:
        """Work out the change. Raises ToolFailure."""
        if not params.old:
            raise invalid_arguments("old is empty; to make a file or to write a whole one, use write_file")
        if params.old == params.new:
            raise invalid_arguments("old and new are the same; nothing would change")
        place = changeable(context, params.path)
        present = await present_text(context, place)
        if present.text is None:
            raise ToolFailure("TOOL_FAILED", "FileNotFound", f"{place.shown} does not exist; write_file makes new files")
        after = await anyio.to_thread.run_sync(_edited, place, present.text, params, abandon_on_cancel=True)
        return await proposal(context, Change(place, present, after, "edited"))

    async def run(self, context: ToolContext, params: EditFileParams) -> ToolOutput:
        """Edit. Raises ToolFailure."""
        return await (await self.propose(context, params)).apply()


def _edited(place: WorkspacePath, text: str, params: EditFileParams) -> str:
    lines = Lines(text)
    if seen_form(params.old) not in lines.seen:
        reason = f"{place.shown} does not hold that text.{hint(text, params.old)}"
        raise ToolFailure("TOOL_FAILED", "TextNotFound", reason)
    if not params.replace_all and len(tuple(islice(lines.places(params.old), 2))) > 1:
        raise ToolFailure("TOOL_FAILED", "TextNotUnique", _several(place, lines, params.old))
    if params.replace_all and (places := lines.count(params.old)) > _MAX_PLACES:
        raise invalid_arguments(f"old stands at {places:,} places, more than the {_MAX_PLACES:,} that one edit may change")
    if lines.least_length(params.old, params.new, every=params.replace_all) > MAX_TEXT:
        raise invalid_arguments(f"the new text is longer than {MAX_TEXT >> 20} MiB; nothing was changed")
    return lines.replaced(params.old, params.new, every=params.replace_all)


def _several(place: WorkspacePath, lines: Lines, old: str) -> str:
    told = ", ".join(str(lines.line_at(at)) for at in islice(lines.places(old), _MAX_TOLD))
    more = lines.count(old) - _MAX_TOLD
    where = f"{told} and {more:,} more" if more > 0 else told
    return (
        f"{place.shown} holds that text more than once, beginning on lines {where}; "
        "give more of what surrounds the one you mean, or set replaceAll to true"
    )
