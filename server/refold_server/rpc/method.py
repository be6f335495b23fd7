"""Row of a method, and the types that the params of several families share.

A parameter that a method does not take is refused with its path, never silently ignored. Decoding follows the types of a row;
meaning is given by whoever handles it.
"""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta, Raw, Struct

from refold_protocol.rpc.wire_errors import RpcId, WireError, invalid_params
from refold_protocol.session.messages import InputBlock, TextBlock

Direction: TypeAlias = Literal["to-daemon", "to-client", "both"]


Kind: TypeAlias = Literal["request", "notification"]


class Method(Struct, frozen=True, gc=False):
    """A row of the table. `params` is None where they are not read, `result` None where it is null."""

    name: str
    direction: Direction
    kind: Kind
    params: Any
    result: Any
    doc: str


def decode_params(method: Method, given: Raw | None) -> Any:
    """Give the params as the row's type; absent ones count as `{}`. Raises WireError (−32602) naming the path."""
    if method.params is None:
        return None
    if method.params is Raw and given is not None:  # whoever takes it reads it
        return given
    try:
        return _decoder(method.params).decode(b"{}" if given is None else given)
    except (msgspec.DecodeError, RecursionError) as error:
        raise WireError(invalid_params(method.name, error)) from None


def decode_result(method: Method, given: Raw) -> Any:
    """Give a result as the row's type. Raises msgspec.DecodeError: the peer broke the contract."""
    return None if method.result is None else _decoder(method.result).decode(given)


@cache
def _decoder(shape: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(shape)


def request_row(name: str, params: Any, result: Any, doc: str) -> Method:
    """Give the row of a request to the daemon."""
    return Method(name, "to-daemon", "request", params, result, doc)


def notification_row(name: str, direction: Direction, params: Any, doc: str) -> Method:
    """Give the row of a notification."""
    return Method(name, direction, "notification", params, None, doc)


class SeqResult(Struct, frozen=True, gc=False):
    """A change that is recorded, durably, at `seq`."""

    seq: int


Seq: TypeAlias = Annotated[int, Meta(ge=0)]
"""The position of an event."""

Cursor: TypeAlias = Annotated[int, Meta(ge=-1)]
"""The position of the last event that one has; −1 for none."""

ProgressToken: TypeAlias = int | str
"""Names the progress of one piece of work; the client's choice."""

Counting: TypeAlias = Annotated[int, Meta(ge=1)]
"""A number that is at least 1: turns, steps, sizes."""


class NoParams(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """The params of a method that takes none."""


class CancelParams(Struct, frozen=True, gc=False):
    """`$/cancelRequest`: the request to cancel."""

    id: RpcId


class TextInput(Struct, frozen=True, gc=False, tag="text", forbid_unknown_fields=True):
    """Text of a prompt. The only kind of content that can be sent yet."""

    text: str


class SetTraceParams(Struct, frozen=True, gc=False):
    """`$/setTrace`: how much the client wants to hear of what the daemon does."""

    value: Literal["off", "messages", "verbose"]


class ProgressCancelParams(Struct, frozen=True, gc=False):
    """`window/workDoneProgress/cancel`."""

    token: ProgressToken


def input_content(content: tuple[TextInput, ...]) -> tuple[InputBlock, ...]:
    """Give a prompt's content as the log records it."""
    return tuple(TextBlock(block.text) for block in content)
