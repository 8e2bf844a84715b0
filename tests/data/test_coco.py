"""COCO's captions and boxes: its own files, Karpathy's splits, and the one-line-a-photo layout."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from photo_samples import (
    SENTENCES,
    coco_folder,
    coco_line_folder,
    coco_values,
    make_photo,
    write,
    write_karpathy,
    write_value,
)

import saccade.data.text_files
from saccade.core.errors import SaccadeError
from saccade.data.datasets.photos.coco import open_coco, open_coco_boxes, open_coco_mini, open_coco_mini_boxes
from saccade.data.datasets.photos.karpathy import KarpathyImage, KarpathySentence
from saccade.data.text_files import read_items


def test_captions_of_cocos_own_files(tmp_path: Path) -> None:
    root = coco_folder(tmp_path)
    data = open_coco("train", root)  # train2017, the only one there is
    assert data.ids == ("000000000007.jpg",)
    assert data.paths == (root / "images" / "train2017" / "000000000007.jpg",)
    assert data.texts == SENTENCES[:4]
    assert open_coco("train2017", root).ids == data.ids
    with pytest.raises(SaccadeError, match='no split "dev"'):
        open_coco("dev", root)


def test_boxes_without_crowds_and_without_empty_ones(tmp_path: Path) -> None:
    (picture,) = open_coco_boxes("train", coco_folder(tmp_path))
    assert picture.names == ("dog", "sports ball")
    np.testing.assert_allclose(picture.boxes, [[0.1, 0.1, 0.6, 0.6], [0.7625, 20 / 30, 1, 1]], rtol=1e-6)
    assert picture.attributes == ((), ())
    assert (picture.width, picture.height) == (40, 30)


def test_karpathys_splits_find_photos_of_either_year(tmp_path: Path) -> None:
    said = (KarpathySentence("A dog."),)
    images = [
        KarpathyImage("COCO_train2014_000000000007.jpg", "train", said, cocoid=7, filepath="train2014"),
        KarpathyImage("COCO_val2014_000000000008.jpg", "restval", said, cocoid=8, filepath="val2014"),
        KarpathyImage("COCO_val2014_000000000009.jpg", "val", said, cocoid=9, filepath="val2014"),
    ]
    write_karpathy(tmp_path / "dataset_coco.json", images)
    make_photo(tmp_path / "train2014" / "COCO_train2014_000000000007.jpg")
    make_photo(tmp_path / "train2017" / "000000000008.jpg")
    make_photo(tmp_path / "val2014" / "COCO_val2014_000000000009.jpg")
    data = open_coco("train+restval", tmp_path)
    assert data.ids == ("COCO_train2014_000000000007.jpg", "000000000008.jpg")
    assert data.paths[1] == tmp_path / "train2017" / "000000000008.jpg"
    assert open_coco("dev", tmp_path).ids == ("COCO_val2014_000000000009.jpg",)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"images": [{"id": 7, "file_name": "a.jpg", "width": "w", "height": 3}]}, "images[0]: \"width\" is 'w'"),
        ({"annotations": [{"image_id": 8, "category_id": 18, "bbox": [0, 0, 1, 1]}]}, "names the picture 8"),
        ({"annotations": [{"image_id": 7, "category_id": 99, "bbox": [0, 0, 1, 1]}]}, "names the category 99"),
        ({"annotations": [{"image_id": 7, "category_id": 18, "bbox": [0, 0, 1]}]}, 'annotations[0]: "bbox" has 3'),
        ({"annotations": [{"image_id": 7, "category_id": 18, "bbox": [30, 0, 30, 9]}]}, "(30, 0, 60, 9) leaves"),
        ({"annotations": [7]}, "annotations[0] is 7, a mapping was expected"),
    ],
)
def test_a_wrong_field_is_named(tmp_path: Path, change: dict[str, Any], sentence: str) -> None:
    root = coco_folder(tmp_path)
    write_value(root / "annotations" / "instances_train2017.json", coco_values() | change)
    with pytest.raises(SaccadeError, match=r"instances_train2017.json") as error:
        open_coco_boxes("train", root)
    assert sentence in str(error.value)


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    root = coco_folder(tmp_path)
    (root / "images" / "train2017" / "000000000007.jpg").unlink()
    for read in (open_coco, lambda split, root: open_coco_boxes(split, root)):
        with pytest.raises(SaccadeError, match=r"000000000007.jpg is missing"):
            read("train", root)
    with pytest.raises(SaccadeError, match="has no captions: COCO is"):
        open_coco("train", root / "images")
    with pytest.raises(SaccadeError, match=r"instances_train2017.json is missing"):
        open_coco_boxes("train", root / "images")


@pytest.mark.parametrize("name", ["annotations.jsonl.gz", "annotations.jsonl"])
def test_one_line_a_photo(tmp_path: Path, name: str) -> None:
    root = coco_line_folder(tmp_path, name=name)
    data = open_coco_mini("dev", root)
    assert (data.ids, data.texts, data.sizes) == (("1.jpg",), SENTENCES, ((40, 30),))
    (picture,) = open_coco_mini_boxes("val2017", root)
    assert picture.names == ("dog",)  # the crowd is left out
    assert open_coco_boxes("dev", root)[0].names == ("dog",)


def test_the_photos_of_the_repository_are_readable(photos: list[Path]) -> None:
    root = photos[0].parent
    assert set(open_coco_mini("train+dev", root).paths) == set(photos)
    assert all(picture.names for picture in open_coco_boxes("train+dev", root))


def test_items_come_one_by_one_whatever_the_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"a": [1, 23, {"b": "]é,"}, [], "x"], "c": {"d": [1]}, "e": [], "f": 45, "g": [[12]]}
    path = write(tmp_path / "v.json", json.dumps(values, indent=1, ensure_ascii=False))
    wanted = [("a", n, v) for n, v in enumerate(values["a"])] + [("c", 0, {"d": [1]}), ("f", 0, 45), ("g", 0, [12])]
    for chunk in (1, 2, 7, 1 << 20):
        monkeypatch.setattr(saccade.data.text_files, "CHUNK", chunk)
        assert list(read_items(path)) == wanted
    assert list(read_items(write(tmp_path / "l.json.gz", "[1, 2]"))) == [("", 0, 1), ("", 1, 2)]


@pytest.mark.parametrize(
    "text", ["", "7", "[1, 2", "[1 2]", '{"a": [1}', '{"a" 1}', "{1: 2}", "[1] x", "[NaN]", "[" * 9999]
)
def test_broken_json_is_named_by_its_place(tmp_path: Path, text: str) -> None:
    with pytest.raises(SaccadeError, match=r"v\.json"):
        list(read_items(write(tmp_path / "v.json", text)))


@given(
    st.recursive(st.integers() | st.text(max_size=4) | st.none(), lambda v: st.lists(v) | st.dictionaries(st.text(), v))
)
def test_a_list_comes_back_item_by_item(value: Any) -> None:
    with TemporaryDirectory() as folder:
        path = write_value(Path(folder) / "v.json", [value, value])
        assert [item for _, _, item in read_items(path)] == [value, value]
