"""Owns `refold completion`: scripts that complete commands, options and session ids, made from the grammar of the parser.

Session ids are asked of `refold sessions` while one types, from the store that the line names. Only letters of ids pass: a
shell may expand what it completes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from refold_server.cli.exits import COMPLETED
from refold_server.cli.grammar import Grammar, Word, grammars
from refold_server.cli.parser import build_parser
from refold_server.cli.screen import Screen

_IDS: Final = """sessions --all --limit 200 --json 2>/dev/null | sed -n 's/^{"session":"\\([0-9A-Za-z-]*\\)".*/\\1/p'"""


def command(options: argparse.Namespace) -> int:
    """Print the script for a shell."""
    screen = Screen(sys.stdout)
    screen.put("\n".join(SCRIPTS[options.shell](grammars(build_parser()))) + "\n")
    screen.flush()
    return COMPLETED


def bash_lines(rows: Sequence[Grammar]) -> Iterator[str]:
    """Give the script for bash 3.2 or later."""
    valued = [f'"{row.name} {flag}"' for row in rows for word in row.options if word.takes != "nothing" for flag in word.flags]
    head, tail = _BASH.split("CASES\n")
    yield from head.replace("VALUED", "|".join(valued)).rstrip("\n").split("\n")
    for row in rows:
        flags = " ".join(flag for word in row.options for flag in word.flags)
        yield f"    '{row.name} -') words='{flags}' ;;"
        for word in row.options:
            if word.takes != "nothing":
                places = "|".join(f"'{row.name} {flag}'" for flag in word.flags)
                yield f"    {places}) {_bash_words(word)} ;;"
        for number, word in enumerate(row.arguments):
            yield f"    '{row.name} {number}') {_bash_words(word)} ;;"
    yield from tail.rstrip("\n").split("\n")


def zsh_lines(rows: Sequence[Grammar]) -> Iterator[str]:
    """Give the script for zsh, for `eval` behind compinit."""
    yield "# Completion of refold for zsh, made by `refold completion zsh`."
    yield '_refold_ids() { local -a ids; ids=(${(f)"$(command refold ' + _IDS + ')"}); compadd -a ids }'
    yield "_refold() {"
    yield "  local state line; local -a commands"
    yield "  commands=(" + " ".join(f"'{row.name}:{_plain(row.meaning)}'" for row in rows if row.name) + ")"
    yield "  _arguments -C " + " ".join(_zsh_words(rows[0].options)) + " '1: :->command' '*:: :->rest'"
    yield "  [[ $state == command ]] && { _describe command commands; return }"
    yield "  case $line[1] in"
    for row in rows:
        if row.name:
            yield f"    {row.name}) _arguments " + " ".join(_zsh_words((*row.options, *row.arguments))) + " ;;"
    yield "  esac"
    yield "}"
    yield "compdef _refold refold"


def fish_lines(rows: Sequence[Grammar]) -> Iterator[str]:
    """Give the script for fish."""
    yield "# Completion of refold for fish, made by `refold completion fish`."
    yield "function __refold_ids; command refold " + _IDS + "; end"
    yield "complete -c refold -f"
    for row in rows:
        place = f"__fish_seen_subcommand_from {row.name}" if row.name else "__fish_use_subcommand"
        if row.name:
            yield f"complete -c refold -n __fish_use_subcommand -a {row.name} -d '{_plain(row.meaning)}'"
        for word in row.options:
            flags = " ".join(f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}" for flag in word.flags)
            yield f"complete -c refold -n '{place}' {flags}{_fish_value(word)} -d '{word.meaning}'"
        for word in row.arguments:
            if row.name and word.takes in ("session", "choice"):
                yield f"complete -c refold -n '{place}'{_fish_value(word).replace(' -x', '')}"


SCRIPTS: Final[dict[str, Callable[[Sequence[Grammar]], Iterator[str]]]] = {
    "bash": bash_lines,
    "zsh": zsh_lines,
    "fish": fish_lines,
}
"""What writes the script of each shell, line by line."""


def _bash_words(word: Word) -> str:
    match word.takes:
        case "choice":
            return f"words='{' '.join(word.choices)}'"
        case "session":
            return "words=$(_refold_ids)"
        case "folder":
            return "files=-d"
        case "file":
            return "files=-f"
        case _:
            return "return"


def _zsh_words(words: Sequence[Word]) -> Iterator[str]:
    for word in words:
        value = ""
        if word.takes != "nothing":
            actions = {
                "choice": f"({' '.join(word.choices)})",
                "session": "_refold_ids",
                "folder": "_files -/",
                "file": "_files",
            }
            value = f": :{actions.get(word.takes, ' ')}"
        if not word.flags:
            yield f"':{value}'" if value.startswith(": :") else "': : '"
        for flag in word.flags:
            yield f"'{flag}[{word.meaning}]{value}'"


def _fish_value(word: Word) -> str:
    values = {"nothing": "", "choice": f" -x -a '{' '.join(word.choices)}'", "session": " -x -a '(__refold_ids)'"}
    paths = {"folder": " -x -a '(__fish_complete_directories)'", "file": " -r -F"}
    return (values | paths).get(word.takes, " -x")


def _plain(text: str) -> str:
    return text.replace("'", "").replace(":", " -")


_BASH: Final = f"""# Completion of refold for bash, made by `refold completion bash`.
_refold() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} command= expected= number=0 words= files= one i
  local -a places=()
  _refold_ids() {{ "${{COMP_WORDS[0]}}" {_IDS.replace("sessions ", 'sessions ${places[@]+"${places[@]}"} ', 1)}; }}
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    one=${{COMP_WORDS[i]}}
    if [[ $one == = ]]; then
      continue
    elif [[ -n $expected ]]; then
      case $expected in --store | --config) places+=("$expected" "$one") ;; esac
      expected=
    elif [[ $one == -* ]]; then
      case "$command $one" in VALUED) expected=$one ;; esac
    elif [[ -z $command ]]; then
      command=$one
    else
      number=$((number + 1))
    fi
  done
  [[ $word == = ]] && word=
  if [[ -n $expected ]]; then
    one="$command $expected"
  elif [[ $word == -* ]]; then
    one="$command -"
  else
    one="$command $number"
  fi
  case $one in
CASES
    *) return ;;
  esac
  local IFS=$' \\n'
  if [[ -n $files ]]; then
    IFS=$'\\n'
    compopt -o filenames 2>/dev/null
    COMPREPLY=($(compgen $files -- "$word"))
  else
    COMPREPLY=($(compgen -W "$words" -- "$word"))
  fi
}}
complete -F _refold refold
"""
