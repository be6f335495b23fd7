"""The interface of a tool: what it is, what it is given, what it gives back, and how the model's arguments are read.

A tool has one method. It must not know which session, turn or client it works for; it reads no configuration and no
clock of its own. It says that it failed by raising ToolFailure; whatever else it raises is recorded as TOOL_FAILED.

What is approved, what is recorded and what runs come from one reading of the arguments: two readers of
`{"path":"a","path":"b"}` could differ. Every refusal names the parameter and what is wrong with it, since the model can only
repair what it is told.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final, Protocol, TypeVar, cast, runtime_checkable

import msgspec
from msgspec import Struct, field

from refold_protocol.errors import InvalidJsonError
from refold_protocol.ids import CallId
from refold_protocol.json_text import JsonText, parse_strict, repair_surrogates
from refold_protocol.session.events import ApprovalSubject
from refold_protocol.session.messages import ResultBlock, ToolSchema, text_content
from refold_server.tools.open_buffers import NO_BUFFERS, OpenBuffers
from refold_server.tools.skill_index import SkillFolders
from refold_server.tools.text_file import SeenTexts
from refold_server.tools.tool_failure import Interrupted, ToolFailure, first_line, invalid_arguments
from refold_server.tools.workspace_path import Workspace

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
    skills: SkillFolders = SkillFolders()
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


_Params = TypeVar("_Params", bound=Struct)


def read_arguments(tool: str, text: str, params: type[_Params]) -> _Params:
    """Read `text` into `params`. Raises ToolFailure: INVALID_ARGUMENTS with a sentence that names what is wrong, TOOL_FAILED
    for params whose own check fails otherwise than by ValueError and TypeError."""
    try:
        value = parse_strict(text)
    except InvalidJsonError as error:
        raise invalid_arguments(f"the arguments of {tool} are not strict JSON: {error.message}") from None
    if not isinstance(value, dict):
        raise invalid_arguments(f"the arguments of {tool} must be a JSON object")
    try:
        return _converted(cast("dict[str, Any]", value), params)
    except msgspec.ValidationError as error:
        reason = repair_surrogates(str(error)).removeprefix("Object ")
        raise invalid_arguments(f"wrong arguments of {tool}: {reason}. It takes {_described(params)}.") from None
    except Interrupted:
        raise
    except BaseException as error:  # noqa: BLE001 - a struct that checks itself runs its own code, and nothing waits here
        said = first_line(error)
        reason = repair_surrogates(f"{type(error).__name__}: {said}" if said else type(error).__name__)
        raise ToolFailure("TOOL_FAILED", type(error).__name__, f"{tool} failed to read its arguments: {reason}") from None


def _converted(value: dict[str, Any], params: type[_Params]) -> _Params:
    """Convert arguments; numbers, booleans and null that a model wrote as text are taken for what they say. Raises
    ValidationError, which speaks of the arguments as they came."""
    try:
        return msgspec.convert(value, params)
    except msgspec.ValidationError:
        types = {row.encode_name: row.type for row in msgspec.structs.fields(params)}
        taken = {key: _unquoted(one, types[key]) if key in types else one for key, one in value.items()}
        with suppress(msgspec.ValidationError):
            return msgspec.convert(taken, params)
        raise


def _unquoted(value: object, wanted: Any) -> object:
    """Give the number or boolean that a text is written exactly like, where that is `wanted`; else the value itself."""
    if not isinstance(value, str) or _PLAIN.fullmatch(value.strip()) is None:
        return value
    meant: object = json.loads(value.strip().lower())
    try:
        msgspec.convert(value, wanted)
    except msgspec.ValidationError:
        return meant
    return value


_PLAIN: Final = re.compile(r"-?(?:0|[1-9]\d{0,15})(?:\.\d{1,15})?|[Tt]rue|[Ff]alse")


def _described(params: type[Struct]) -> str:
    """List the parameters in their order, and which of them a call must give."""
    fields = msgspec.structs.fields(params)
    if not fields:
        return "no parameters"
    return ", ".join(f"{field.encode_name}{' (required)' if field.required else ''}" for field in fields)
