"""The command `refold completion`: shtab makes the scripts from the parser of all commands.

Session ids are asked of `refold sessions` while one types, in bash from the store that the line names. Only letters of ids
pass: a shell may expand what it completes.
"""

from __future__ import annotations

import argparse
from typing import Final

from refold_server.cli.command_line import build_parser, command_names
from refold_server.cli.exit_codes import COMPLETED, PRINTING_CODES
from refold_server.cli.terminal import standard_output

SUMMARY = "print a script that completes refold's commands in a shell"
DESCRIPTION = """Print a script for a shell that completes refold's commands, options and session ids. For bash:
eval "$(refold completion bash)" in ~/.bashrc; for zsh the same in ~/.zshrc, after compinit; for fish:
refold completion fish > ~/.config/fish/completions/refold.fish"""
EXIT_CODES = PRINTING_CODES

SHELLS: Final = ("bash", "zsh", "fish")
"""Shells for which there is a script."""

_IDS: Final = """sessions --all --limit 200 --json 2>/dev/null | sed -n 's/^{"session":"\\([0-9A-Za-z-]*\\)".*/\\1/p'"""

_SESSIONS: Final = {
    "bash": "_refold_sessions",
    "zsh": "_refold_sessions",
    "fish": "(_refold_sessions)",
    "preamble": {
        "bash": f"""\
_refold_sessions() {{
  local i
  local -a store=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    case ${{COMP_WORDS[i]}} in --store | --config) store+=("${{COMP_WORDS[i]}}" "${{COMP_WORDS[i + 1]}}") ;; esac
  done
  compgen -W "$("${{COMP_WORDS[0]}}" {_IDS.replace("--all", '--all ${store[@]+"${store[@]}"}')})" -- "$1"
}}
""",
        "zsh": '_refold_sessions() { local -a ids; ids=(${(f)"$(command refold ' + _IDS + ')"}); compadd -a ids }',
        "fish": f"function _refold_sessions; command refold {_IDS}; end",
    },
}

_NAMES: Final = "models --names 2>/dev/null"

_MODELS: Final = {
    "bash": "_refold_models",
    "zsh": "_refold_models",
    "fish": "(_refold_models)",
    "preamble": {
        "bash": f"""\
_refold_models() {{
  local names
  names=$("${{COMP_WORDS[0]}}" {_NAMES})
  compgen -W "$names" -- "$1"
}}
""",
        "zsh": '_refold_models() { local -a names; names=(${(f)"$(command refold ' + _NAMES + ')"}); compadd -a names }',
        "fish": f"function _refold_models; command refold {_NAMES}; end",
    },
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("shell", metavar="SHELL", choices=SHELLS, help=f"which one: {', '.join(SHELLS)}")


def run(options: argparse.Namespace) -> int:
    """Print the script for a shell."""
    import shtab

    kinds = {"SESSION": _SESSIONS, "ID": _SESSIONS, "PROVIDER/MODEL": _MODELS, "FOLDER": shtab.DIRECTORY, "FILE": shtab.FILE}
    parser = build_parser(command_names())
    for one in parser.all_parsers():
        one.description = None  # shtab would take its first line in place of the summary
        for argument in one.arguments():
            if (kind := kinds.get(str(argument.metavar))) is not None:
                argument.complete = kind  # pyright: ignore[reportAttributeAccessIssue] - shtab's own attribute
    out = standard_output()
    out.put(shtab.complete(parser, options.shell) + "\n")
    out.flush()
    return COMPLETED
