"""E-05: an edit is made where the text is, against the text as it is, and says where it was made."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from refold_protocol.rpc.wire_errors import ErrorObject
from refold_server.lsp import editor_edits
from refold_server.lsp.editor_edits import EditRefused, apply_text_edit, rewritten
from refold_server.lsp.selection_commands import EditOutcome
from refold_server.lsp.text_positions import OpenDocument, Splice
from refold_server.rpc.client_requests import PeerError, PeerGoneError
from tests.support.language import NotingClient

pytestmark = pytest.mark.anyio


class DoubleEditor:
    """An editor that has open what a test says, and answers as it says."""

    def __init__(self, *documents: OpenDocument, answer: Any = None, **announced: bool) -> None:
        self.encoding = "utf-16"
        self.applies_edits = announced.get("applies_edits", True)
        self.checks_versions = announced.get("checks_versions", True)
        self.open = documents
        self.told_saved: list[OpenDocument] = []
        self.client = NotingClient(applyEdit={"applied": True} if answer is None else answer)

    async def documents(self) -> tuple[OpenDocument, ...]:
        return self.open

    async def saved(self, document: OpenDocument) -> None:
        self.told_saved.append(document)

    async def request(self, method: str, params: object = None) -> Raw:
        return await self.client.request(method, params)

    @property
    def edits(self) -> list[Any]:
        """The edits that it was asked to make."""
        assert all(method == "workspace/applyEdit" for method, _ in self.client.asked)
        return [params["edit"] for _, params in self.client.asked]


def opened(path: Path, text: str, *, saved: bool = False) -> OpenDocument:
    return OpenDocument(path.as_uri(), str(path), 7, text, saved)


def replaced(old: str, new: str) -> Callable[[str], list[Splice]]:
    def change(text: str) -> list[Splice]:
        if text.count(old) != 1:
            raise EditRefused(f"{old!r} is there {text.count(old)} times")
        return [Splice(text.index(old), text.index(old) + len(old), new)]

    return change


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file of three lines."""
    path = tmp_path / "a.txt"
    path.write_text("1\n2\n3\n")
    return path


def on_disk(file: Path) -> str:
    return file.read_text()


def write(file: Path, data: bytes) -> None:
    file.write_bytes(data)


async def test_a_file_that_is_not_open_is_edited_on_disk(file: Path) -> None:
    editor = DoubleEditor()
    assert await apply_text_edit(editor, str(file), replaced("2", "4")) == EditOutcome(str(file), False)
    assert on_disk(file) == "1\n4\n3\n"
    assert editor.edits == []


@pytest.mark.parametrize("disk", ["1\n2\n3\n", "\ufeff1\n2\n3\n", "1\n2\n3"])
async def test_a_clean_open_file_is_edited_on_disk_and_known_to_be_saved(file: Path, disk: str) -> None:
    write(file, disk.encode())
    editor = DoubleEditor(opened(file, "1\n2\n3\n"))
    assert await apply_text_edit(editor, str(file), replaced("2", "4")) == EditOutcome(str(file), False, 7)
    assert on_disk(file) == disk.replace("2", "4")
    assert editor.edits == []
    assert editor.told_saved == list(editor.open)


async def test_a_saved_open_file_is_edited_on_disk_which_may_be_newer(file: Path) -> None:
    editor = DoubleEditor(opened(file, "older 2\n", saved=True))
    await apply_text_edit(editor, str(file), replaced("2", "4"))
    assert on_disk(file) == "1\n4\n3\n"


async def test_e05_a_dirty_open_file_is_edited_in_the_editor_with_its_version_and_stays_unsaved(file: Path) -> None:
    editor = DoubleEditor(opened(file, "1\n😋U 2\n3\n"))
    assert await apply_text_edit(editor, str(file), replaced("2", "4"), label="fix") == EditOutcome(str(file), True, 7)
    span = {"start": {"line": 1, "character": 4}, "end": {"line": 1, "character": 5}}
    document = {"uri": file.as_uri(), "version": 7}
    assert editor.edits == [{"documentChanges": [{"textDocument": document, "edits": [{"range": span, "newText": "4"}]}]}]
    assert editor.client.asked[0][1]["label"] == "fix"
    assert on_disk(file) == "1\n2\n3\n"
    assert editor.told_saved == []


async def test_a_client_that_checks_no_versions_gets_plain_changes(file: Path) -> None:
    editor = DoubleEditor(opened(file, "U2"), checks_versions=False)
    await apply_text_edit(editor, str(file), replaced("2", "4"))
    span = {"start": {"line": 0, "character": 1}, "end": {"line": 0, "character": 2}}
    assert editor.edits == [{"changes": {file.as_uri(): [{"range": span, "newText": "4"}]}}]


async def test_a_new_file_that_was_never_saved_is_edited_in_the_editor(tmp_path: Path) -> None:
    editor = DoubleEditor(opened(tmp_path / "new.txt", "2"))
    assert (await apply_text_edit(editor, str(tmp_path / "new.txt"), replaced("2", "4"))).unsaved
    assert os.listdir(tmp_path) == []


async def test_an_open_file_is_found_through_links(file: Path) -> None:
    link = file.parent / "link.txt"
    link.symlink_to("a.txt")
    editor = DoubleEditor(opened(link, "unsaved 2"))
    assert (await apply_text_edit(editor, str(file), replaced("2", "4"))).unsaved


async def test_a_dirty_file_in_an_editor_that_cannot_edit_is_left_alone(file: Path) -> None:
    editor = DoubleEditor(opened(file, "U2"), applies_edits=False)
    with pytest.raises(EditRefused, match="cannot be asked to edit; save it first"):
        await apply_text_edit(editor, str(file), replaced("2", "4"))
    assert (editor.edits, on_disk(file)) == ([], "1\n2\n3\n")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"applied": False, "failureReason": "version 8 now"}, "refused to edit .*: version 8 now"),
        ({"applied": False}, "it gave no reason"),
        (PeerError(ErrorObject(-32601, "no such method")), "failed: no such method"),
        (PeerGoneError("the connection ended"), "failed: the connection ended"),
        ({"done": True}, "failed: "),
        ([], "failed: "),
    ],
)
async def test_what_the_editor_did_not_do_is_not_called_done(file: Path, answer: Any, said: str) -> None:
    editor = DoubleEditor(opened(file, "U2"), answer=answer)
    with pytest.raises(EditRefused, match=said):
        await apply_text_edit(editor, str(file), replaced("2", "4"))
    assert on_disk(file) == "1\n2\n3\n"


@pytest.mark.parametrize("unsaved", ["1\nU\n3\n", "1\n2\n2\n"])
async def test_e05_a_change_that_does_not_fit_the_text_as_it_is_now_is_refused(file: Path, unsaved: str) -> None:
    editor = DoubleEditor(opened(file, unsaved))
    with pytest.raises(EditRefused, match="is there"):
        await apply_text_edit(editor, str(file), replaced("2", "4"))
    assert (editor.edits, on_disk(file)) == ([], "1\n2\n3\n")


async def test_e05_a_file_that_changes_between_reading_and_writing_is_left_alone(file: Path) -> None:
    def change(text: str) -> list[Splice]:
        file.write_text("somebody else\n")
        return [Splice(0, 1, "x")]

    with pytest.raises(EditRefused, match="changed on disk meanwhile"):
        await apply_text_edit(DoubleEditor(), str(file), change)
    assert on_disk(file) == "somebody else\n"


async def test_a_document_that_changes_while_the_disk_is_read_is_taken_as_it_is_then(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    editor = DoubleEditor(opened(file, "1\n2\n3\n"))
    find = editor_edits.document_at

    def types_meanwhile(documents: Any, path: str) -> Any:
        found = find(documents, path)
        editor.open = (opened(file, "typed 2"),)
        return found

    monkeypatch.setattr(editor_edits, "document_at", types_meanwhile)
    assert (await apply_text_edit(editor, str(file), replaced("2", "4"))).unsaved
    assert editor.edits[0]["documentChanges"][0]["edits"][0]["range"]["start"] == {"line": 0, "character": 6}


async def test_what_cannot_be_read_or_written_is_refused_in_a_sentence(tmp_path: Path, file: Path) -> None:
    async def refusal(path: Path) -> str:
        with pytest.raises(EditRefused) as refused:
            await apply_text_edit(DoubleEditor(), str(path), replaced("2", "4"))
        return str(refused.value)

    assert await refusal(tmp_path / "none") == f"{tmp_path / 'none'} does not exist"
    assert await refusal(tmp_path) == f"{tmp_path} cannot be read: Is a directory"
    write(file, b"2\xff")
    assert await refusal(file) == f"{file} is not UTF-8 text"


async def test_a_file_that_cannot_be_written_is_refused(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*given: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(editor_edits, "replace_text", full)
    with pytest.raises(EditRefused, match="cannot be written: No space left"):
        await apply_text_edit(DoubleEditor(), str(file), replaced("2", "4"))


async def test_a_whole_text_is_rewritten_with_as_little_as_differs_and_only_over_what_was_seen(file: Path) -> None:
    editor = DoubleEditor(opened(file, "1\n2\nU\n"))
    await apply_text_edit(editor, str(file), rewritten("1\n2\nU\n", "1\n4\nU\n"))
    (edit,) = editor.edits[0]["documentChanges"][0]["edits"]
    assert edit == {"range": {"start": {"line": 1, "character": 0}, "end": {"line": 1, "character": 1}}, "newText": "4"}
    with pytest.raises(EditRefused, match="changed meanwhile"):
        await apply_text_edit(editor, str(file), rewritten("1\n2\n3\n", "1\n4\n3\n"))


@pytest.mark.parametrize("text", ["1\n2\n3\n", "unsaved"])
async def test_a_change_that_changes_nothing_touches_nothing(file: Path, text: str) -> None:
    before = os.stat(file)
    editor = DoubleEditor(opened(file, text))
    await apply_text_edit(editor, str(file), lambda text: [])
    assert (os.stat(file), editor.edits, editor.told_saved) == (before, [], [])


async def test_half_a_surrogate_pair_in_an_open_text_does_not_reach_the_disk(file: Path) -> None:
    await apply_text_edit(DoubleEditor(), str(file), lambda text: [Splice(0, 1, "\ud83d")])
    assert on_disk(file) == "\ufffd\n2\n3\n"


@pytest.fixture
def dos_file(file: Path) -> Path:
    """The same file with the line ends of another system."""
    file.write_bytes(b"1\r\n2\r\n3\r\n")
    return file


def bytes_on_disk(file: Path) -> bytes:
    return file.read_bytes()


async def test_an_editor_that_keeps_line_ends_apart_edits_several_lines_and_the_file_keeps_its_own(dos_file: Path) -> None:
    editor = DoubleEditor(opened(dos_file, "1\n2\n3\n"))
    await apply_text_edit(editor, str(dos_file), rewritten("1\n2\n3\n", "one\ntwo\n3\n"))
    assert bytes_on_disk(dos_file) == b"one\r\ntwo\r\n3\r\n"
