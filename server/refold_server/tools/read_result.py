"""The tool `read_result`: the whole of an earlier result that was shortened to make room in the model's window.

What it reads is in the log, word for word. The tool is offered to sessions only in which a result was shortened (`host.py`):
the history is paid anew then in any case.
"""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, Struct

from refold_protocol.json_text import compact_json
from refold_protocol.session.messages import ToolSchema
from refold_server.tools.tool import ToolContext, ToolOutput, text_output
from refold_server.tools.tool_failure import invalid_arguments

READ_RESULT: Final = "read_result"

_NOTE_ROOM: Final = 120


class ReadResultParams(Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of `read_result`."""

    seq: Annotated[int, Meta(ge=0, le=2**53)]
    offset: Annotated[int, Meta(ge=0, le=2**53)] = 0


class ReadResult:
    """The tool."""

    schema = ToolSchema(
        name=READ_RESULT,
        description=(
            "Read an earlier tool result whose middle was cut out to make room. The note in its place names `seq`. Where it "
            "is long, it is given in pieces: go on with the `offset` that the last one ends with."
        ),
        parameters=compact_json(
            {
                "type": "object",
                "properties": {
                    "seq": {"type": "integer", "minimum": 0, "maximum": 2**53, "description": "The number in the note."},
                    "offset": {
                        "type": "integer",
                        "minimum": 0,
                        "maximum": 2**53,
                        "description": "The first character to give. Default: 0.",
                    },
                },
                "required": ["seq"],
                "additionalProperties": False,
            }
        ),
    )
    read_only = True
    params = ReadResultParams

    async def run(self, context: ToolContext, params: ReadResultParams) -> ToolOutput:
        """Read. Raises ToolFailure."""
        results = context.results
        text = None if results is None else results.text(params.seq)
        if results is None or text is None:
            raise invalid_arguments(f"there is no tool result with seq {params.seq} in this session")
        if params.offset and params.offset >= len(text):
            raise invalid_arguments(f"that result has {len(text):,} characters, so no offset from {params.offset:,} on")
        piece = text[params.offset : params.offset + max(1, context.output_limit - _NOTE_ROOM)]
        piece = piece[: max(1, results.readable(piece))]
        end = params.offset + len(piece)
        if end < len(text):
            piece += f"\n[characters {params.offset:,} to {end:,} of {len(text):,}; go on with offset {end}]"
        return text_output(piece)
