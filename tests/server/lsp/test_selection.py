"""A selection is resolved against the document as it is, and the prompt holds what it stood for."""

from __future__ import annotations

from typing import Any

import pytest

from refold_protocol.rpc.language import COMMANDS, EDIT, EXPLAIN, FIX
from refold_protocol.rpc.lsp_types import Position, Range
from refold_protocol.rpc.wire_errors import WireError
from refold_server.lsp.selection_answer import FORMAT
from refold_server.lsp.selection_commands import (
    NO_INSTRUCTION,
    Selection,
    SelectionParams,
    prompt,
    read_argument,
    resolve,
    shown_path,
)
from refold_server.lsp.text_positions import OpenDocument

DOCUMENT = OpenDocument("file:///w/a.py", "/w/a.py", 3, 'x="😋"\ny = 2\nz = 3\n')


def params(start: tuple[int, int], end: tuple[int, int], **others: Any) -> SelectionParams:
    return SelectionParams(DOCUMENT.uri, Range(Position(*start), Position(*end)), **others)


@pytest.mark.parametrize(("encoding", "column"), [("utf-8", 7), ("utf-16", 5), ("utf-32", 4)])
def test_d06_a_selection_is_taken_in_the_units_that_were_agreed_on(encoding: str, column: int) -> None:
    selection = resolve(EDIT, params((0, 2), (0, column)), DOCUMENT, encoding)
    assert selection.text == '"😋'


def test_the_version_is_checked_where_one_is_named() -> None:
    assert resolve(EDIT, params((0, 0), (0, 1), version=3), DOCUMENT, "utf-16").text == "x"
    with pytest.raises(WireError, match="version 3 now, not 2") as refused:
        resolve(EDIT, params((0, 0), (0, 1), version=2), DOCUMENT, "utf-16")
    assert refused.value.error.code == -32801


def test_what_is_not_open_or_not_selected_is_refused_with_its_place() -> None:
    with pytest.raises(WireError, match=r"refold\.fix: \$\.arguments\[0\]\.uri: no open document"):
        resolve(FIX, params((0, 0), (0, 1)), None, "utf-16")
    with pytest.raises(WireError, match=r"\$\.arguments\[0\]\.range: nothing is selected"):
        resolve(FIX, params((0, 99), (0, 120)), DOCUMENT, "utf-16")


@pytest.mark.parametrize(
    ("start", "end", "lines", "told"),
    [
        ((1, 0), (1, 5), "2", "line 2 column 1 to line 2 column 6"),
        ((0, 2), (2, 1), "1-3", "line 1 column 3 to line 3 column 2"),
        ((0, 5), (1, 0), "1-2", "line 1 column 5 to line 2 column 1"),
    ],
)
def test_lines_and_columns_are_told_in_characters_from_one(
    start: tuple[int, int], end: tuple[int, int], lines: str, told: str
) -> None:
    selection = resolve(EDIT, params(start, end), DOCUMENT, "utf-16")
    assert (selection.lines, selection.range) == (lines, told)


def test_a_path_is_shown_below_its_folder_or_whole() -> None:
    assert shown_path("/w/sub/a.py", "/w") == "sub/a.py"
    assert shown_path("/w-evil/a.py", "/w") == "/w-evil/a.py"


def asked(command: str, **others: Any) -> tuple[str, str]:
    given = params((1, 0), (2, 0), **others)
    what, reference = prompt(command, given, resolve(command, given, DOCUMENT, "utf-16"), "a.py")
    return what.text, reference.text


@pytest.mark.parametrize("command", COMMANDS)
def test_the_reference_has_path_range_and_the_text_that_was_selected(command: str) -> None:
    assert asked(command)[1] == (
        "The selection is a.py, line 2 column 1 to line 3 column 1, as it is open in the editor:\n\n```\ny = 2\n```"
    )


def test_a_command_that_edits_tells_the_form_of_the_answer_and_one_that_explains_does_not() -> None:
    assert asked(FIX)[0] == f"Fix what is wrong in the selected text.\n\n{FORMAT}"
    assert asked(EDIT)[0] == f"Edit the selected text.\n\n{NO_INSTRUCTION}\n\n{FORMAT}"
    assert asked(EXPLAIN)[0] == "Explain the selected text."


def test_an_instruction_stands_in_the_place_of_the_general_one() -> None:
    assert asked(EDIT, instruction="Rename y.")[0] == f"Edit the selected text.\n\nRename y.\n\n{FORMAT}"
    assert asked(EDIT, instruction=" \n")[0] == asked(EDIT)[0]
    assert asked(EXPLAIN, instruction="Briefly.")[0] == "Explain the selected text.\n\nBriefly."


def test_what_the_editor_reports_is_told() -> None:
    told = "The editor reports:\n- line 2: undefined\n- line 2: unused"
    assert told in asked(FIX, diagnostics=("line 2: undefined", "line 2: unused"))[0]


def test_a_fence_is_longer_than_any_in_the_text_and_the_text_valid_unicode() -> None:
    document = OpenDocument("u", "/w/a", 1, "```\nhalf \ud83d\n````")
    selection = Selection(document, 0, len(document.text))
    reference = prompt(EXPLAIN, params((0, 0), (9, 0)), selection, "a")[1].text
    assert reference.endswith(":\n\n`````\n```\nhalf \ufffd\n````\n`````")


NOWHERE: Any = {"start": {"line": 0, "character": 0}, "end": {"line": 0, "character": 0}}
WRONG: list[tuple[tuple[Any, ...], str]] = [
    ((), r"\$\.arguments: Expected `array` of length 1"),
    (({"uri": "u", "range": NOWHERE}, {}), r"\$\.arguments: Expected `array` of length 1"),
    ((5,), r"\$\.arguments\[0\]: Expected `object`"),
    (({},), r"\$\.arguments\[0\]\.uri: this parameter is missing"),
    (({"uri": "u"},), r"\$\.arguments\[0\]\.range: this parameter is missing"),
    (({"uri": "u", "range": NOWHERE | {"start": {"line": -1, "character": 0}}},), r"\$\.arguments\[0\]\.range\.start\.line"),
    (({"uri": "u", "range": NOWHERE, "sesion": "x"},), r"\$\.arguments\[0\]\.sesion: this parameter is not taken here"),
]


@pytest.mark.parametrize(("arguments", "said"), WRONG)
def test_d05_an_argument_that_is_none_is_refused_with_the_place(arguments: tuple[Any, ...], said: str) -> None:
    with pytest.raises(WireError, match=said) as refused:
        read_argument(FIX, arguments)
    assert refused.value.error.code == -32602
