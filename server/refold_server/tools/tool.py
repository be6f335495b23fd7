"""Owns the seam between the pipeline and one tool: what a tool is, what it is given, what it gives back.

A tool has one method. It must not know which session, turn or client it works for; it reads no configuration and no
clock of its own. It says that it failed by raising ToolFailure; whatever else it raises is recorded as TOOL_FAILED.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol, runtime_checkable

from msgspec import Struct, field

from refold_protocol.ids import CallId
from refold_protocol.json_text import JsonText
from refold_protocol.session.events import ApprovalSubject
from refold_protocol.session.header_types import ToolSchema
from refold_protocol.session.messages import ResultBlock, text_content
from refold_server.tools.failure import ToolFailure
from refold_server.tools.open_buffers import NO_BUFFERS, OpenBuffers
from refold_server.tools.paths import Workspace
from refold_server.tools.seen_texts import SeenTexts
from refold_server.tools.skills import SkillShelf

__all__ = [
    "OUTPUT_LIMIT",
    "TIME_LIMIT_S",
    "PastResults",
    "Proposal",
    "ProposingTool",
    "Tool",
    "ToolContext",
    "ToolFailure",
    "ToolOutput",
    "text_output",
]

OUTPUT_LIMIT: Final = 50_000
"""Characters (Unicode code points) of text that one result may hold."""

TIME_LIMIT_S: Final = 120.0
"""Seconds that one call may take."""


class PastResults(Protocol):
    """The tool results that a session's log holds."""

    @property
    def are_shortened(self) -> bool:
        """Whether the model sees one of them shortened."""
        ...

    def text(self, seq: int) -> str | None:
        """Give the text of the result with that seq, None where there is none."""
        ...

    def readable(self, text: str) -> int:
        """Give how many of a text's first characters the model may be given at once, so that they need not be cut again
        before it has read them."""
        ...


class ToolContext(Struct, frozen=True):
    """What a call may work with. `output_limit` counts characters, `time_limit_s` seconds; `buffers` is what an editor has
    open; `skills` says where skills lie besides the workspace; `seen` is what the session's model saw of files; `results` are
    the earlier results of the session, None where there is no log."""

    workspace: Workspace
    call_id: CallId
    output_limit: int = OUTPUT_LIMIT
    time_limit_s: float = TIME_LIMIT_S
    buffers: OpenBuffers = NO_BUFFERS
    skills: SkillShelf = SkillShelf()
    seen: SeenTexts = field(default_factory=SeenTexts)
    results: PastResults | None = None


class ToolOutput(Struct, frozen=True):
    """What a call gave. `meta` is for programs and never shown to the model."""

    content: tuple[ResultBlock, ...]
    meta: JsonText | None = None


class Tool(Protocol):
    """One tool. `schema` never changes while the process lives; `read_only` tells that it may run beside others."""

    @property
    def schema(self) -> ToolSchema:
        """The name, the description and the JSON Schema that the model is sent."""
        ...

    @property
    def read_only(self) -> bool:
        """Whether a run changes nothing that another run could see."""
        ...

    @property
    def params(self) -> type[Struct]:
        """The struct that arguments are read into; it forbids unknown fields and agrees with `schema.parameters`."""
        ...

    async def run(self, context: ToolContext, params: Any) -> ToolOutput:
        """Do it. `params` is an instance of `self.params`. Raises ToolFailure."""
        ...


class Proposal(Struct, frozen=True):
    """What a call would do, worked out and not done: the exact subject that a person is shown, and the deed itself. `apply`
    refuses with ToolFailure where the world is no longer what the subject was made from."""

    subject: ApprovalSubject
    apply: Callable[[], Awaitable[ToolOutput]]


@runtime_checkable
class ProposingTool(Tool, Protocol):
    """A tool that changes something and can say exactly what before it does. One that cannot is asked about by its name and
    arguments."""

    async def propose(self, context: ToolContext, params: Any) -> Proposal:
        """Work out what the call would do. Changes nothing. Raises ToolFailure where it cannot be done."""
        ...


def text_output(text: str) -> ToolOutput:
    """Give an output that is `text` alone."""
    return ToolOutput(text_content(text))
