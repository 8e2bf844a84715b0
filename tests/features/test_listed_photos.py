"""Which pictures a user means, and what they are called."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from PIL import Image

from saccade.core.errors import SaccadeError
from saccade.data.records import other_names
from saccade.features.extraction import list_pictures


def photo(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (4, 3)).save(path)
    return path


def test_a_picture_is_called_by_its_path_inside_the_folder(tmp_path: Path) -> None:
    for name in ("b.jpg", "a/c.png", "a/b.jpg"):
        photo(tmp_path / "photos" / name)
    (tmp_path / "photos" / "notes.md").touch()
    found = list_pictures([tmp_path / "photos"])
    assert [id for id, _ in found] == ["a/b.jpg", "a/c.png", "b.jpg"]
    assert all(path == tmp_path / "photos" / id for id, path in found)
    assert list_pictures([tmp_path / "photos"], limit=1) == found[:1]


def test_single_files_and_lists(tmp_path: Path) -> None:
    one, two = photo(tmp_path / "x" / "one.jpg"), photo(tmp_path / "x" / "deep" / "two.jpg")
    (tmp_path / "x" / "list.txt").write_text(f"deep/two.jpg\n\n{one}\nmissing.jpg\n", encoding="utf-8")
    found = dict(list_pictures([tmp_path / "x" / "list.txt"]))
    assert found == {"deep/two.jpg": two, "one.jpg": one, "missing.jpg": tmp_path / "x" / "missing.jpg"}
    assert list_pictures([one, one, two]) == [("one.jpg", one), ("two.jpg", two)]


def test_one_name_for_two_pictures_is_refused(tmp_path: Path) -> None:
    folders = [photo(tmp_path / name / "same.jpg").parent for name in ("a", "b")]
    with pytest.raises(SaccadeError, match=r'two pictures have the name "same\.jpg"'):
        list_pictures(folders)
    assert [id for id, _ in list_pictures([tmp_path])] == ["a/same.jpg", "b/same.jpg"]


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SaccadeError, match="nowhere does not exist"):
        list_pictures([tmp_path / "nowhere"])
    with pytest.raises(SaccadeError, match="holds no picture"):
        list_pictures([tmp_path])


def test_a_file_name_that_is_no_text_gets_an_id_that_is(tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.jpg"))
    photo(tmp_path / "plain.jpg").rename(path)
    assert list_pictures([tmp_path]) == [("caf\\udce9.jpg", path)]


def test_others_may_leave_the_folder_out_where_that_is_clear() -> None:
    assert other_names(["a/x.jpg", "b/x.jpg", "b/y.jpg"]) == {
        "y.jpg": "b/y.jpg",
        "a/x.jpg": "a/x.jpg",
        "b/x.jpg": "b/x.jpg",
        "b/y.jpg": "b/y.jpg",
    }
