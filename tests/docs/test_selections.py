"""What docs/selections.md shows is what the commands take, give and read."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest

from refold_protocol.rpc.language import ACTION_KINDS
from refold_server.lsp.selection_answer import replacement_in
from refold_server.lsp.selection_commands import CommandResult, read_argument

TEXT = (Path(__file__).parents[2] / "docs" / "selections.md").read_text(encoding="utf-8")


def blocks(kind: str) -> list[str]:
    """Give the blocks of the page with that info string."""
    return [found[1] for found in re.finditer(rf"^(?:```|````){kind}\n(.*?)^(?:```|````)$", TEXT, re.MULTILINE | re.DOTALL)]


@pytest.mark.parametrize("argument", blocks("json argument"))
def test_the_argument_is_one_with_every_member(argument: str) -> None:
    params = read_argument("refold.edit", (json.loads(argument),))
    assert json.loads(msgspec.json.encode(params)) == json.loads(argument)
    assert set(json.loads(argument)) == set(params.__struct_encode_fields__)


@pytest.mark.parametrize("result", blocks("json result"))
def test_the_results_are_written_so(result: str) -> None:
    assert msgspec.json.encode(msgspec.json.decode(result, type=CommandResult)).decode() == result.strip()


def test_the_reply_holds_a_replacement() -> None:
    (reply,) = re.findall(r"^````text reply\n(.*?)^````$", TEXT, re.MULTILINE | re.DOTALL)
    assert replacement_in(reply) == "x = 2"


def test_every_command_is_in_the_table_with_its_kind() -> None:
    for name, kind in ACTION_KINDS.items():
        assert f"| `{name}` | `{kind}` |" in TEXT


def test_there_is_something_to_look_at() -> None:
    assert (len(blocks("json argument")), len(blocks("json result"))) == (1, 3)
