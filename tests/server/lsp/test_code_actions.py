"""Which actions are offered for a selection, in which form."""

from __future__ import annotations

import json

import pytest

from refold_protocol.rpc.language import ACTION_KINDS, COMMANDS, EDIT, EXPLAIN, FIX
from refold_protocol.rpc.lsp_types import CodeAction, Command, Position, Range
from refold_server.lsp.selection_commands import MAX_DIAGNOSTICS, TITLES, ActionRequest, offered, read_argument
from refold_server.lsp.text_positions import OpenDocument

SELECTED = Range(Position(0, 0), Position(2, 3))
DOCUMENT = OpenDocument("file:///w/a.py", "/w/a.py", 7, "x")


def names(asked: ActionRequest) -> list[str]:
    return [action.command.command for action in offered(asked, [DOCUMENT], literals=True) if isinstance(action, CodeAction)]


def test_a_selection_is_offered_each_command_with_its_title_and_kind() -> None:
    actions = offered(ActionRequest(DOCUMENT.uri, SELECTED), [DOCUMENT], literals=True)
    assert list(TITLES) == list(COMMANDS)
    for action, name in zip(actions, COMMANDS, strict=True):
        assert isinstance(action, CodeAction)
        assert (action.title, action.kind) == (TITLES[name], ACTION_KINDS[name])
        assert (action.command.title, action.command.command) == (TITLES[name], name)


def test_the_argument_is_one_that_the_command_takes_and_names_the_version() -> None:
    for action in offered(ActionRequest(DOCUMENT.uri, SELECTED), [DOCUMENT], literals=True):
        assert isinstance(action, CodeAction)
        (argument,) = (json.loads(bytes(one)) for one in action.command.arguments)
        params = read_argument(action.command.command, (argument,))
        assert (params.uri, params.range, params.version, params.session) == (DOCUMENT.uri, SELECTED, 7, None)


def test_a_client_that_takes_commands_only_gets_commands() -> None:
    commands = offered(ActionRequest(DOCUMENT.uri, SELECTED), [DOCUMENT], literals=False)
    assert [command.command for command in commands if isinstance(command, Command)] == list(COMMANDS)


def test_a_cursor_and_what_is_no_file_are_offered_nothing() -> None:
    cursor = Range(Position(1, 1), Position(1, 1))
    assert offered(ActionRequest(DOCUMENT.uri, cursor), [DOCUMENT], literals=True) == ()
    assert offered(ActionRequest("untitled:1", SELECTED), [DOCUMENT], literals=True) == ()


@pytest.mark.parametrize(
    ("only", "expected"),
    [
        (None, [EXPLAIN, FIX, EDIT]),
        ((), []),
        (("",), [EXPLAIN, FIX, EDIT]),
        (("quickfix",), [FIX]),
        (("refactor",), [EDIT]),
        (("refactor.rewrite",), [EDIT]),
        (("refactor.rewrite.more",), []),
        (("refact",), []),
        (("refold",), [EXPLAIN]),
        (("source", "quickfix"), [FIX]),
    ],
)
def test_kinds_are_wanted_by_their_name_or_by_one_above(only: tuple[str, ...] | None, expected: list[str]) -> None:
    assert names(ActionRequest(DOCUMENT.uri, SELECTED, only)) == expected


def test_what_the_editor_reports_goes_to_the_fix_alone_and_not_without_bound() -> None:
    reported = tuple(f"line {number}: wrong" for number in range(50))
    for action in offered(ActionRequest(DOCUMENT.uri, SELECTED, diagnostics=reported), [DOCUMENT], literals=True):
        assert isinstance(action, CodeAction)
        argument = json.loads(bytes(action.command.arguments[0]))
        expected = list(reported[:MAX_DIAGNOSTICS]) if action.command.command == FIX else None
        assert argument.get("diagnostics") == expected


def test_a_document_that_is_not_open_has_no_version() -> None:
    (action, *_) = offered(ActionRequest("file:///w/other.py", SELECTED), [DOCUMENT], literals=True)
    assert isinstance(action, CodeAction)
    assert "version" not in json.loads(bytes(action.command.arguments[0]))
