"""Between URIs and paths, and which document is meant by either."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold_server.lsp.text_positions import OpenDocument, document_at, document_named, folder_of, path_of_uri


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("file:///w/a.txt", "/w/a.txt"),
        ("file://localhost/w/a.txt", "/w/a.txt"),
        ("FILE:///w/a.txt", "/w/a.txt"),
        ("file:///w/a%20b%23%3F%25.txt", "/w/a b#?%.txt"),
        ("file:///w/%E4%B8%96.txt", "/w/世.txt"),
        ("file:///w/世.txt", "/w/世.txt"),
        ("file:///w/%FF.txt", "/w/\udcff.txt"),
        ("file:///c%3A/a.txt", "/c:/a.txt"),
    ],
)
def test_a_file_uri_names_a_path(uri: str, path: str) -> None:
    assert path_of_uri(uri) == path


@pytest.mark.parametrize(
    "uri",
    ["", "untitled:1", "file:", "file:a.txt", "file://host/a.txt", "git:/w/a.txt", "/w/a.txt", "file://[x/a", "file:///a%00b"],
)
def test_any_other_uri_names_none(uri: str) -> None:
    assert path_of_uri(uri) is None


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0/"), min_size=1))
def test_the_uri_of_a_path_leads_back_to_it(name: str) -> None:
    path = Path("/w") / name
    assert path_of_uri(path.as_uri()) == str(path)


def test_a_document_is_found_by_its_uri_however_that_is_escaped() -> None:
    document = OpenDocument("file:///w/a%20b", "/w/a b", 1, "")
    assert document_named([document], "file:///w/a b") == document
    assert document_named([document], "file:///w/a") is None


def test_a_document_is_found_by_its_file_through_links(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    document = OpenDocument("u", str(tmp_path / "link" / "new.txt"), 1, "")
    nameless = OpenDocument("untitled:1", None, 1, "")
    assert document_at([nameless, document], str(tmp_path / "real" / "new.txt")) == document
    assert document_at([nameless], str(tmp_path / "real" / "new.txt")) is None


def test_a_file_is_in_the_innermost_folder_by_the_parts_of_its_path() -> None:
    folders = ("/w", "/w/sub/", "/w-evil")
    assert folder_of("/w/sub/a.txt", folders) == "/w/sub/"
    assert folder_of("/w/a.txt", folders) == "/w"
    assert folder_of("/w-evil/a.txt", folders) == "/w-evil"
    assert folder_of("/w-other/a.txt", folders) is None
    assert folder_of("/w/a.txt", ()) is None
