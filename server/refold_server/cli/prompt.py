"""Owns what `refold run` is asked and where: the prompt from the command line or standard input, and the current folder."""

from __future__ import annotations

import sys
from pathlib import Path

from refold_protocol.errors import ConfigError
from refold_server.cli.screen import Screen

FROM_STDIN = "-"
"""The prompt that means: read it from standard input."""


def read_prompt(text: str) -> str:
    """Give the prompt; `-` reads standard input to its end, which is UTF-8, and drops line breaks at its end as a shell
    does. Raises ConfigError for a blank prompt, and for one that is not text."""
    prompt = _standard_input() if text == FROM_STDIN else text
    if not prompt.strip():
        raise ConfigError("PROMPT", "is blank; say what to do")
    return prompt


def current_folder() -> str:
    """Give the path of the current folder. Raises ConfigError when there is none, or none that a log can name."""
    try:
        folder = str(Path.cwd())
    except OSError:  # it was removed, or may not be looked at
        raise ConfigError("cwd", "the current folder is not there any more; go to another one") from None
    if not _is_unicode(folder):
        raise ConfigError("cwd", f"the path of the current folder is not UTF-8, and logs hold text only: {folder!r}")
    return folder


def _standard_input() -> str:
    if sys.stdin.isatty():
        Screen(sys.stderr, vital=False).line("(type the prompt; Ctrl-D at the beginning of a line ends it)")
    try:
        return sys.stdin.buffer.read().decode().rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise ConfigError("PROMPT", f"standard input is not UTF-8: {error.reason} at byte {error.start}") from None
    except OSError as error:  # a folder, or a terminal that is gone
        raise ConfigError("PROMPT", f"standard input cannot be read: {error.strerror}") from None


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)
