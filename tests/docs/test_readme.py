"""What README.md says is what happens: its marked console blocks are run, its marked JSON is JSON.

Invariant: What the readme shows is what happens.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from refold_protocol.json_text import check_json
from tests.support.readme_blocks import Block, Command, commands, marked_blocks, output_matches, run_command

ROOT = Path(__file__).parents[2]
BLOCKS = marked_blocks((ROOT / "README.md").read_text(encoding="utf-8"))


def _blocks(language: str) -> list[Block]:
    return [block for block in BLOCKS if block.language == language]


def test_every_mark_is_one_that_is_acted_upon() -> None:
    assert {(block.language, block.mark) for block in BLOCKS} <= {("console", "run"), ("json", "check")}
    assert _blocks("console")


def test_the_console_blocks_of_the_readme_do_what_it_says(tmp_path: Path) -> None:
    for block in _blocks("console"):
        for command in commands(block.text):
            real = run_command(command.line, cwd=ROOT, store=tmp_path / "store")
            assert output_matches(command.output, real), f"README.md, line {block.line}: {command.line}\n{real}"


def test_the_json_blocks_of_the_readme_are_strict_json() -> None:
    for block in _blocks("json"):
        check_json(block.text)


SAMPLE = """Text

```console run
$ echo one
one
$ true
```

```console
$ rm -r everything
```

```json check
{"a": 1}
```
"""


def test_only_marked_blocks_are_taken() -> None:
    assert marked_blocks(SAMPLE) == [
        Block("console", "run", "$ echo one\none\n$ true\n", 4),
        Block("json", "check", '{"a": 1}\n', 14),
    ]


def test_a_console_block_is_split_into_commands_and_their_output() -> None:
    assert commands("$ echo one\none\n\ntwo\n$ true\n") == [Command("echo one", "one\n\ntwo\n"), Command("true", "")]
    with pytest.raises(ValueError, match="output without a command"):
        commands("one\n$ echo one\n")


@pytest.mark.parametrize(
    ("promised", "real", "right"),
    [
        ("a\n", "a\n", True),
        ("a\n", "b\n", False),
        ("a.c\n", "abc\n", False),
        ("took … ms\n", "took 12 ms\n", True),
        ("took … ms\n", "took 12\nms\n", False),
        ("a\n…\nz\n", "a\nb\nc\nz\n", True),
        ("a\n…\nz\n", "a\nb\nc\n", False),
        ("", "surprise\n", False),
    ],
)
def test_an_ellipsis_stands_for_what_differs(promised: str, real: str, right: bool) -> None:
    assert output_matches(promised, real) == right


def test_a_command_runs_with_a_store_of_its_own(tmp_path: Path) -> None:
    assert run_command('echo "$REFOLD_STORE"', cwd=tmp_path, store=tmp_path / "s") == f"{tmp_path / 's'}\n"
