"""Boxes from a file: two formats are read, everything else gets a sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.core.errors import SaccadeError
from saccade.data.formats.regions import GivenBoxes, read_boxes


def write(path: Path, value: Any) -> Path:
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def test_pixels_are_meant_unless_fractions_are_said(tmp_path: Path) -> None:
    boxes = {"a.jpg": [[0, 0, 10, 20], [5, 5, 6.5, 7]], "b.jpg": []}
    found = read_boxes(write(tmp_path / "b.json", boxes))
    assert found.unit == "pixel"
    assert found.boxes["a.jpg"].tolist() == boxes["a.jpg"]
    assert found.boxes["b.jpg"].shape == (0, 4)
    found = read_boxes(write(tmp_path / "b.json", {"unit": "fraction", "a.jpg": [[0, 0, 0.5, 1]]}))
    assert (found.unit, list(found.boxes)) == ("fraction", ["a.jpg"])


def test_annotations_as_coco_has_them(tmp_path: Path) -> None:
    images = [{"id": 7, "file_name": "a.jpg", "width": 640, "height": 480}, {"id": 8, "file_name": "b.jpg"}]
    annotations = [
        {"image_id": 8, "bbox": [1, 2, 3, 4], "iscrowd": 0},
        {"image_id": 7, "bbox": [10.5, 20, 30, 40]},
        {"image_id": 7, "bbox": [0, 0, 640, 480], "iscrowd": 1},
        {"image_id": 7, "caption": "no box"},
    ]
    found = read_boxes(write(tmp_path / "b.json", {"images": images, "annotations": annotations}))
    assert {name: rows.tolist() for name, rows in found.boxes.items()} == {
        "a.jpg": [[10.5, 20, 40.5, 60]],
        "b.jpg": [[1, 2, 4, 6]],
    }
    assert found.sizes == {"a.jpg": (640, 480)}
    annotations[0]["image_id"] = 9
    with pytest.raises(SaccadeError, match=r"annotations\[0\]: no picture has the id 9"):
        read_boxes(write(tmp_path / "b.json", {"images": images, "annotations": annotations}))


def test_a_picture_in_a_folder_is_found_by_its_file_name(tmp_path: Path) -> None:
    file = GivenBoxes({"a.jpg": np.ones((1, 4)), "x/b.jpg": np.ones((2, 4)), "c.jpg": np.ones((3, 4))})
    found = file.of(["x/a.jpg", "x/b.jpg", "y/c.jpg", "z/c.jpg"], tmp_path)
    assert {"x/a.jpg", "x/b.jpg"} <= found.boxes.keys()
    assert not {"y/c.jpg", "z/c.jpg"} & found.boxes.keys()  # two are called c.jpg: neither is meant
    with pytest.raises(SaccadeError, match=r'none of the 1 pictures: it names "a\.jpg", the first is "a\.png"'):
        file.of(["a.png"], tmp_path)
    with pytest.raises(SaccadeError, match="it is empty"):
        GivenBoxes({}).of(["a.png"], tmp_path)


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ([1, 2], "must hold"),
        ({"unit": "pixels", "a.jpg": []}, '"pixel" or "fraction" was expected; did you mean "pixel"?'),
        ({"unit": 3}, '"unit" is 3'),
        ({"a.jpg": {"x": 1}}, '"a.jpg": a list of boxes'),
        ({"a.jpg": [1, 2, 3, 4]}, '"a.jpg", box 0: four numbers were expected'),
        ({"a.jpg": [[1, 2, 3]]}, "four numbers were expected, not [1, 2, 3]"),
        ({"a.jpg": [[0, 0, 1, 1], [1, 2, 3, "4"]]}, "\"a.jpg\", box 1 is '4', a number was expected"),
        ({"a.jpg": [[5, 0, 5, 1]]}, "[5, 0, 5, 1] is empty"),
        ({"images": 3, "annotations": []}, '"images" is 3, a list was expected'),
        ({"images": [{"id": 1}], "annotations": []}, 'images[0]: "file_name" is missing, text was expected'),
        (
            {"images": [{"id": 1, "file_name": "a"}], "annotations": [{"image_id": 1, "bbox": [1, 2]}]},
            'annotations[0]: "bbox" has 2 numbers, [x, y, width, height] was expected',
        ),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, value: Any, sentence: str) -> None:
    with pytest.raises(SaccadeError) as error:
        read_boxes(write(tmp_path / "b.json", value))
    assert sentence in str(error.value)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=8), inner, max_size=5),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(value=json_values | st.fixed_dictionaries({"images": json_values, "annotations": json_values}))
def test_any_json_is_read_or_refused_with_a_sentence(tmp_path_factory: pytest.TempPathFactory, value: Any) -> None:
    path = tmp_path_factory.getbasetemp() / "any.json"
    path.write_text(json.dumps(value), encoding="utf-8")
    try:
        found = read_boxes(path)
    except SaccadeError:
        return
    assert all(rows.shape[1:] == (4,) and np.isfinite(rows).all() for rows in found.boxes.values())
