"""What is offered of the language-server side follows from what the client announced, and from nothing else."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from msgspec import Raw, Struct, UnsetType

from refold_protocol.rpc import language, lsp_types
from refold_protocol.rpc.initialize import InitializeParams
from refold_protocol.rpc.initialize_reply import initialize_result
from refold_protocol.rpc.language import ACTION_KINDS, COMMANDS, LanguageParams, WorkspaceFolder, announced, language_params
from refold_server.lsp.editor_edits import EditOutcome
from refold_server.lsp.lsp_bridge import LANGUAGE_METHODS
from refold_server.lsp.selection_commands import CommandOutcome, CommandResult, SelectionParams
from refold_server.rpc.method_table import METHODS
from tests.support.annotations import fields, mutable_parts

DOCUMENTS: Any = {"textDocument": {"synchronization": {}}}
LITERALS: Any = {"codeActionLiteralSupport": {"codeActionKind": {"valueSet": []}}}
OFFERED = {"textDocumentSync", "codeActionProvider", "executeCommandProvider", "workspace"}


def initialize(params: Any) -> InitializeParams:
    return msgspec.json.decode(msgspec.json.encode(params), type=InitializeParams)


def answer(capabilities: Any) -> dict[str, Any]:
    """Give the capabilities that answer a client with these."""
    result = initialize_result(initialize({"capabilities": capabilities}))
    return json.loads(msgspec.json.encode(result))["capabilities"]


@pytest.mark.parametrize(
    "capabilities",
    [
        None,
        {},
        {"general": {"positionEncodings": ["utf-8"]}},
        {"textDocument": {}, "workspace": {}},
        {"textDocument": None, "workspace": None},
        {"textDocument": {"completion": {}, "synchronization": None}, "window": {"workDoneProgress": True}},
        {"workspace": {"applyEdit": True, "workspaceFolders": False, "configuration": True}},
    ],
)
def test_a_client_that_needs_nothing_of_it_is_offered_nothing(capabilities: Any) -> None:
    assert OFFERED.isdisjoint(answer(capabilities))
    assert not announced(initialize({"capabilities": capabilities}).capabilities).needs_language_side


@pytest.mark.parametrize(
    "capabilities",
    [
        DOCUMENTS,
        {"textDocument": {"codeAction": {}}},
        {"workspace": {"executeCommand": {}}},
        {"workspace": {"workspaceFolders": True}},
    ],
)
def test_a_client_that_announces_a_part_of_it_is_offered_all(capabilities: Any) -> None:
    assert set(answer(capabilities)) >= OFFERED
    assert announced(initialize({"capabilities": capabilities}).capabilities).needs_language_side


def test_documents_are_synchronized_by_increments_and_folders_are_followed() -> None:
    offered = answer(DOCUMENTS)
    assert offered["textDocumentSync"] == {"openClose": True, "change": 2, "save": True}
    assert offered["workspace"] == {"workspaceFolders": {"supported": True, "changeNotifications": True}}
    assert offered["executeCommandProvider"] == {"commands": list(COMMANDS), "workDoneProgress": True}


def test_kinds_of_actions_are_told_to_clients_that_take_actions_only() -> None:
    assert answer({"textDocument": {"codeAction": LITERALS}})["codeActionProvider"] == {
        "codeActionKinds": list(ACTION_KINDS.values())
    }
    assert answer({"textDocument": {"codeAction": {}}})["codeActionProvider"] is True


def test_what_can_be_registered_later_is_not_offered_at_once() -> None:
    dynamic = {"dynamicRegistration": True}
    actions = answer({"textDocument": {"codeAction": dynamic | LITERALS}})
    assert "codeActionProvider" not in actions
    assert "executeCommandProvider" in actions
    commands = answer({"workspace": {"executeCommand": dynamic}})
    assert "executeCommandProvider" not in commands
    assert "codeActionProvider" in commands


def test_what_is_registered_is_for_files_only() -> None:
    full = announced(initialize({"capabilities": {"textDocument": {"codeAction": LITERALS}}}).capabilities)
    assert json.loads(bytes(language.registered_actions(full))) == {
        "documentSelector": [{"scheme": "file"}],
        "codeActionKinds": list(ACTION_KINDS.values()),
    }
    assert "codeActionKinds" not in json.loads(bytes(language.registered_actions(language.Announced())))


@pytest.mark.parametrize("odd", [5, "x", [], {"synchronization": 5}, {"codeAction": {"dynamicRegistration": "yes"}}])
def test_a_part_whose_shape_is_not_lsps_counts_as_not_announced(odd: Any) -> None:
    assert OFFERED.isdisjoint(answer({"textDocument": odd}))
    assert set(answer({"textDocument": odd, "workspace": {"workspaceFolders": True}})) >= OFFERED


def test_what_else_lsp_has_in_these_parts_passes() -> None:
    parts: Any = {
        "textDocument": {"synchronization": {"didSave": True, "willSave": 1}, "hover": {}},
        "workspace": {"symbol": {}},
    }
    assert announced(initialize({"capabilities": parts}).capabilities).needs_language_side


def test_whether_edits_can_be_asked_for_and_name_a_version_is_read() -> None:
    def read(workspace: Any) -> tuple[bool, bool]:
        client = announced(initialize({"capabilities": {"workspace": workspace}}).capabilities)
        return client.applies_edits, client.checks_versions

    assert read({}) == (False, False)
    assert read({"applyEdit": True, "workspaceEdit": {}}) == (True, False)
    assert read({"applyEdit": True, "workspaceEdit": {"documentChanges": True}}) == (True, True)


def test_folders_and_roots_are_read_and_odd_ones_count_as_none() -> None:
    def read(params: Any) -> LanguageParams:
        return language_params(initialize(params), Raw(msgspec.json.encode(params)))

    folders = read({"workspaceFolders": [{"uri": "file:///w", "name": "w"}], "rootUri": "file:///r", "rootPath": "/r"})
    assert folders == LanguageParams(folders=(WorkspaceFolder("file:///w", "w"),), root_uri="file:///r", root_path="/r")
    assert read({"workspaceFolders": None, "rootUri": None}) == LanguageParams()
    assert read({"workspaceFolders": [{"name": "no uri"}]}) == LanguageParams()
    assert read({"capabilities": {"general": {"positionEncodings": ["utf-8"]}}}).encoding == "utf-8"
    assert language_params(InitializeParams(), None) == LanguageParams()


@pytest.mark.parametrize("name", LANGUAGE_METHODS)
def test_a_method_of_lsp_says_what_it_does_and_passes_as_it_came(name: str) -> None:
    row = LANGUAGE_METHODS[name]
    assert row.name == name
    assert name not in METHODS
    assert row.doc.endswith(".")
    assert row.direction == "to-daemon"
    assert row.params is Raw


SHAPES: list[type[Struct]] = [
    value
    for module in (lsp_types, language)
    for value in vars(module).values()
    if isinstance(value, type) and issubclass(value, Struct) and value.__module__ == module.__name__
] + [SelectionParams, CommandResult, CommandOutcome, EditOutcome]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_the_shapes_are_immutable_all_the_way_down_and_say_what_they_are(shape: type[Struct]) -> None:
    assert shape.__struct_config__.frozen
    assert shape.__doc__ or shape.__name__.startswith("_")
    faults = [fault for field, part in fields(shape).items() for fault in mutable_parts(part, field)]
    assert [fault for fault in faults if not fault.endswith((repr(Raw), repr(UnsetType)))] == []
