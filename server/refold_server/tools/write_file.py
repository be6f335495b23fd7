"""The tool `write_file`: a whole text file, new or in the place of the present one.

Writing a whole file removes what the model does not know of. So a file that is there is written over only if this session's
model has seen its present text: what a person or program changed since it was read is never lost.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from refold_protocol.json_text import compact_json
from refold_protocol.session.messages import ToolSchema
from refold_server.tools.text_change import Change, PresentText, changeable, present_text, proposal
from refold_server.tools.text_file import BYTE_ORDER_MARK
from refold_server.tools.text_match import has_crlf_only
from refold_server.tools.tool import Proposal, ToolContext, ToolOutput
from refold_server.tools.tool_failure import ToolFailure
from refold_server.tools.workspace_path import WorkspacePath


class WriteFileParams(Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of `write_file`."""

    path: Annotated[str, Meta(min_length=1)]
    content: str


class WriteFile:
    """The tool."""

    schema = ToolSchema(
        name="write_file",
        description=(
            "Write a whole text file of the workspace: a new one, with the folders it needs, or in the place of one that "
            "is there, which must have been read before. To change a part of a file, use edit_file."
        ),
        parameters=compact_json(
            {
                "type": "object",
                "properties": {
                    "path": {
                        "type": "string",
                        "minLength": 1,
                        "description": "The file to write, relative to the workspace.",
                    },
                    "content": {"type": "string", "description": "The whole text that the file shall hold."},
                },
                "required": ["path", "content"],
                "additionalProperties": False,
            }
        ),
    )
    read_only = False
    params = WriteFileParams

    async def propose(self, context: ToolContext, params: WriteFileParams) -> Proposal:
        """Work out the change. Raises ToolFailure."""
        place = changeable(context, params.path)
        present = await present_text(context, place)
        _check_seen(context, place, present)
        return await proposal(context, Change(place, present, _fitted(params.content, present), "wrote"))

    async def run(self, context: ToolContext, params: WriteFileParams) -> ToolOutput:
        """Write. Raises ToolFailure."""
        return await (await self.propose(context, params)).apply()


def _check_seen(context: ToolContext, place: WorkspacePath, present: PresentText) -> None:
    seen = context.seen.at(place)
    if present.digest is None or present.digest == seen or not present.text:
        return  # a file without text has nothing to lose
    if seen is None:
        reason = f"{place.shown} is there already; read it with read_file before you write over it"
        raise ToolFailure("STALE", "NotRead", reason)
    reason = f"{place.shown} was changed by somebody since you read it; read it again and keep what they changed"
    raise ToolFailure("STALE", "FileChanged", reason)


def _fitted(content: str, present: PresentText) -> str:
    """Give the content with the line ends of the present text, where all of those are `\\r\\n`, which models are not shown;
    without a byte order mark where the file has its own."""
    if present.text is None:
        return content
    if present.data.startswith(BYTE_ORDER_MARK):
        content = content.removeprefix("\ufeff")
    return content.replace("\n", "\r\n") if has_crlf_only(present.text) and "\r" not in content else content
