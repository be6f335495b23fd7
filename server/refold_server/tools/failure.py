"""Owns how a tool says that it failed: the exception, and the codes by which programs tell failures apart.

A failure is an outcome that the model reads and reacts to, not a fault of refold's: it ends no turn and crosses no layer,
because `execute.py` turns it into an error result. So it is not in the tree of `refold_protocol.errors`.
"""

from __future__ import annotations

from typing import Final

CODES: Final[dict[str, str]] = {
    "UNKNOWN_TOOL": "no tool of that name",
    "INVALID_ARGUMENTS": "the arguments are not strict JSON, or not what the tool takes",
    "DENIED": "a rule or a person forbids it; nothing was read or changed",
    "TIMED_OUT": "the tool did not end in time and was stopped",
    "STALE": "the file is not what the model read, or what was proposed; nothing was changed, and reading again helps",
    "TOOL_FAILED": "the tool ran and did not succeed",
}
"""The codes that tools and their pipeline give. Those of calls that a turn's end cut off are in `session/closers.py`."""


class ToolFailure(Exception):  # noqa: N818 - an outcome of a tool; "error" is the word for what the result records
    """A tool could not do what was asked. `code` is one of CODES, `name` the class of the failure in CamelCase, and
    `message` a sentence for the model, which should say what to do instead."""

    def __init__(self, code: str, name: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.name = name
        self.message = message


def invalid_arguments(message: str) -> ToolFailure:
    """Give the failure of arguments that cannot be what the model meant."""
    return ToolFailure("INVALID_ARGUMENTS", "InvalidArguments", message)
