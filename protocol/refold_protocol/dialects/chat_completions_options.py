"""The settings of the chat-completions dialect, and what a user may merge into its bodies.

Settings reach the encoder by one way only, as canonical text in the recorded header, so that a changed configuration
never makes an old log unprovable. The functions here run when configuration is read; they never see a request.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final, Literal, cast

import msgspec
from msgspec import Struct

from refold_protocol.errors import ConfigError, InvalidJsonError
from refold_protocol.json_text import JsonText, parse_strict

RESERVED: Final[frozenset[str]] = frozenset({"messages", "model", "stream", "tools"})
"""Members of a body that only the encoder writes. For others, a member of `extra` takes the encoder's one's place."""


class Options(Struct, frozen=True, gc=False, rename="camel", forbid_unknown_fields=True):
    """What servers of this dialect differ in.

    `max_tokens_field` is the name under which the output limit is sent. `tool_only_content` is what `content` is in a
    reply of calls alone: null, an empty string, or no member at all; each is refused by some server. `include_usage`
    asks for the token usage at the end of a stream. With `roles = "in-turn"` consecutive user messages are sent as one, and
    nothing is sent empty; many chat templates refuse anything else. With `call_ids = "nine"` ids of calls are sent as nine
    letters and digits (Mistral), with `tool_names = "safe"` names of calls without characters that servers refuse. `stream`
    asks for the answer in pieces.

    With `reasoning_tags = "head"` what stands between tags like `<think>` at the head of a reply is reasoning; `open` is for
    chat templates that write the opening tag themselves. `reasoning_history` says how the reasoning of earlier replies is
    sent back: not at all, between `<think>` tags in the text, or as `reasoning_content`. With `text_calls = "whole"` a reply
    that is nothing but calls of offered tools, written as text, makes these calls.

    The defaults of the fields are what a recorded text that lacks them means; a new session's are those of `resolve_options`.
    """

    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    tool_only_content: Literal["null", "empty", "absent"] = "null"
    include_usage: bool = True
    roles: Literal["as-they-come", "in-turn"] = "as-they-come"
    call_ids: Literal["as-given", "nine"] = "as-given"
    tool_names: Literal["as-given", "safe"] = "as-given"
    stream: bool = True
    reasoning_tags: Literal["off", "head", "open"] = "off"
    reasoning_history: Literal["omit", "tags", "field"] = "omit"
    text_calls: Literal["off", "whole"] = "off"

    @property
    def in_turn(self) -> bool:
        """Whether user and assistant take turns in a body."""
        return self.roles == "in-turn"


def resolve_options(settings: Mapping[str, object]) -> JsonText:
    """Give the canonical text of the options: in declared order, defaults filled in. A field that came with a later release
    is left out where it asks for what was always done.

    Keys may be spelled as in TOML (`max_tokens_field`) or as in JSON (`maxTokensField`). Raises ConfigError for unknown
    keys and for values that are not allowed.
    """
    try:
        options = msgspec.convert(_STRICTEST | {_camel(key): value for key, value in settings.items()}, Options)
    except msgspec.ValidationError as error:
        raise ConfigError("options", str(error)) from None
    written = cast("dict[str, object]", msgspec.to_builtins(options))
    return JsonText(
        json.dumps({key: value for key, value in written.items() if _LATER.get(key, ...) != value}, separators=(",", ":"))
    )


def read_options(text: JsonText | None) -> Options:
    """Read what `resolve_options` wrote; None gives the defaults. Raises ConfigError for a text of another release."""
    if text is None:
        return Options()
    try:
        return _DECODER.decode(text)
    except msgspec.DecodeError as error:
        raise ConfigError("options", f"recorded options that this encoder cannot follow: {error}") from None


def takes_text_calls(text: JsonText | None) -> bool:
    """Tell whether calls that a model writes as text are taken for calls."""
    return read_options(text).text_calls == "whole"


def check_extra(text: str) -> JsonText:
    """Accept the text of an object to be merged into bodies. Raises ConfigError when it is none, or when it redefines a
    member that only the encoder writes."""
    try:
        value = parse_strict(text)
    except InvalidJsonError as error:
        raise ConfigError("extra", f"not JSON: {error.message}") from None
    if not isinstance(value, dict):
        raise ConfigError("extra", "must be an object")
    for name in sorted(RESERVED):
        if name in value:
            raise ConfigError("extra", f"may not set {name!r}, which refold writes itself")
    return JsonText(text)


def extra_members(text: JsonText | None) -> tuple[frozenset[str], bytes]:
    """Give the names of an extra object's members, and its members as JSON without the braces (empty for none)."""
    if text is None:
        return frozenset(), b""
    names = frozenset(parse_strict(text))
    return names, text.strip()[1:-1].strip().encode()


def _camel(key: str) -> str:
    first, *rest = key.split("_")
    return first + "".join(word[:1].upper() + word[1:] for word in rest)


_DECODER: Final = msgspec.json.Decoder(Options)
_STRICTEST: Final = {
    "roles": "in-turn",
    "callIds": "nine",
    "toolNames": "safe",
    "reasoningTags": "head",
    "textCalls": "whole",
}
"""What the strictest server takes, and what local models need: the defaults of a new session."""

_LATER: Final = {
    "roles": "as-they-come",
    "callIds": "as-given",
    "toolNames": "as-given",
    "stream": True,
    "reasoningTags": "off",
    "reasoningHistory": "omit",
    "textCalls": "off",
}
"""Fields that the first release did not write, and what it did."""
