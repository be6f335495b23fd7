"""Where a change is made: in the editor that has the file unsaved, else on disk, which open editors then are told of."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from refold_server.tools.open_buffers import NO_BUFFERS, OpenBuffer
from refold_server.tools.tool_failure import ToolFailure
from tests.support.buffers import Buffers
from tests.support.changes import Changing
from tests.support.patching import patched
from tests.support.tool_calls import code, fill, text

pytestmark = pytest.mark.anyio

NOTE = "\n[it is open in an editor with unsaved changes, so this was done there; the disk has the old text]"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file of three lines."""
    return fill(tmp_path, {"a.txt": "1\n2\n3\n"}) / "a.txt"


def on_disk(file: Path) -> str:
    return file.read_text()


async def test_e_05_b_an_unsaved_text_is_edited_in_its_editor_and_the_result_says_so(file: Path) -> None:
    buffers = Buffers()
    buffers.typed(file, "1\nU\n2\n")
    session = Changing(file.parent, buffers)
    proposed = await session.proposed("edit_file", path="a.txt", old="2", new="4")
    assert patched("1\nU\n2\n", proposed.subject.text) == "1\nU\n4\n"
    answer = await proposed.run()
    assert text(answer) == "edited a.txt: line 3" + NOTE
    assert json.loads(answer.meta or "")["unsaved"] is True
    assert buffers.text(file) == "1\nU\n4\n"
    assert buffers.labels == ["refold: a.txt"]
    assert on_disk(file) == "1\n2\n3\n"
    assert code(await session.edit("3", "x")) == "TOOL_FAILED", "what only the disk has is not there"


async def test_e_05_b_a_whole_file_write_does_not_remove_what_was_typed_meanwhile(file: Path) -> None:
    buffers = Buffers()
    session = Changing(file.parent, buffers)
    await session.read()
    buffers.typed(file, "1\nU\n3\n")
    assert code(await session.write("1\n4\n3\n")) == "STALE"
    await session.read()
    assert text(await session.write("1\nU\n4\n")) == "wrote a.txt: line 3" + NOTE
    assert (buffers.text(file), on_disk(file)) == ("1\nU\n4\n", "1\n2\n3\n")
    assert text(await session.write("x\n")).startswith("wrote a.txt"), "what it made it has seen"


async def test_e_05_typing_between_the_question_and_the_answer_makes_it_stale(file: Path) -> None:
    buffers = Buffers()
    session = Changing(file.parent, buffers)
    for typed in ("1\n2\n3\nU\n", "1\n2\n3\nUU\n"):
        proposed = await session.proposed("edit_file", path="a.txt", old="2", new="4")
        buffers.typed(file, typed)
        assert code(await proposed.run()) == "STALE"
        assert (buffers.text(file), on_disk(file)) == (typed, "1\n2\n3\n")


async def test_a_text_that_was_saved_or_opened_meanwhile_is_changed_where_it_is_by_then(file: Path) -> None:
    buffers = Buffers()
    buffers.typed(file, "1\nU\n")
    session = Changing(file.parent, buffers)
    proposed = await session.proposed("edit_file", path="a.txt", old="1", new="one")
    fill(file.parent, {"a.txt": "1\nU\n"})
    assert text(await proposed.run()) == "edited a.txt: line 1"
    assert on_disk(file) == "one\nU\n"
    assert [one.text for one in buffers.told_saved] == ["1\nU\n"]


async def test_a_clean_buffer_is_edited_on_disk_and_its_editor_is_told(file: Path) -> None:
    buffers = Buffers(OpenBuffer(str(file), "1\n2\n3\n", 7))
    session = Changing(file.parent, buffers)
    assert text(await session.edit("2", "4")) == "edited a.txt: line 2"
    assert on_disk(file) == "1\n4\n3\n"
    assert [one.version for one in buffers.told_saved] == [7]
    assert buffers.labels == []
    assert text(await session.edit("4", "5")) == "edited a.txt: line 2", "the disk has what is new"
    assert on_disk(file) == "1\n5\n3\n"


async def test_an_editor_is_told_what_was_written_also_when_the_turn_is_cancelled_amid_the_write(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its old text would pass for unsaved changes, and the next edit would be made of that."""
    buffers = Buffers()
    buffers.typed(file, "1\n2\n3\n")
    session = Changing(file.parent, buffers)
    proposed = await session.proposed("edit_file", path="a.txt", old="2", new="4")
    told = buffers.saved

    async def saved(buffer: OpenBuffer) -> None:
        scope.cancel()
        await anyio.lowlevel.checkpoint()
        await told(buffer)

    monkeypatch.setattr(buffers, "saved", saved)
    with anyio.CancelScope() as scope:
        assert text(await proposed.run()) == "edited a.txt: line 2"
    assert on_disk(file) == "1\n4\n3\n"
    assert [buffer.saved for buffer in buffers.open] == [True]
    assert "4" in text(await session.read())


async def test_a_file_that_was_never_saved_is_written_in_its_editor(tmp_path: Path) -> None:
    buffers = Buffers()
    buffers.typed(tmp_path / "new.txt", "typed\n")
    session = Changing(tmp_path, buffers)
    assert code(await session.write("mine\n", "new.txt")) == "STALE"
    assert text(await session.edit("typed", "kept", "new.txt")) == "edited new.txt: line 1" + NOTE
    assert buffers.text(tmp_path / "new.txt") == "kept\n"
    assert not (tmp_path / "new.txt").exists()


async def test_an_editor_that_refuses_leaves_all_as_it_was(file: Path) -> None:
    buffers = Buffers()
    buffers.typed(file, "U\n")
    buffers.failure = ToolFailure("TOOL_FAILED", "EditorRefused", "nothing was changed: it would not")
    answer = await Changing(file.parent, buffers).edit("U", "x")
    assert (code(answer), text(answer)) == ("TOOL_FAILED", "nothing was changed: it would not")
    assert (buffers.text(file), on_disk(file)) == ("U\n", "1\n2\n3\n")


async def test_of_two_views_of_one_file_the_unsaved_one_is_edited(file: Path) -> None:
    (file.parent / "link.txt").symlink_to("a.txt")
    for order in (1, -1):
        views = (OpenBuffer(str(file), "typed\n", 3), OpenBuffer(str(file.parent / "link.txt"), "1\n2\n3\n", 4, saved=True))
        buffers = Buffers(*views[::order])
        await Changing(file.parent, buffers).edit("typed", "more")
        assert buffers.text(file) == "more\n"


async def test_without_an_editor_there_is_nothing_to_edit(file: Path) -> None:
    with pytest.raises(ToolFailure) as caught:
        await NO_BUFFERS.edit(OpenBuffer(str(file), "", 1), "x", "label")
    assert caught.value.code == "STALE"
    assert caught.value.message == "a.txt was changed or closed in the editor meanwhile; read it again"
    assert await NO_BUFFERS.saved(OpenBuffer(str(file), "", 1)) is None
