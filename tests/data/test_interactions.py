"""HICO-DET's JSON form and VRD: what is read, what is left out, and the sentence for every way they can be broken."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from interaction_samples import HICO, VRD, hico, vrd

from saccade.core.errors import SaccadeError
from saccade.data import DataConfig, open_records
from saccade.data.datasets.photos.interactions import hico_names
from saccade.data.registry import recognise


def test_hico_gives_persons_and_what_they_do(tmp_path: Path) -> None:
    (picture,) = open_records(hico(tmp_path), "train", "boxes")
    assert picture.names == ("person", "cow")  # a box without area is none
    np.testing.assert_allclose(picture.boxes, [[0, 0, 0.5, 0.5], [0.5, 0.5, 1, 1]])
    assert picture.relations == ((0, "ride", 1), (0, "point", 1))  # no_interaction says nothing
    assert (picture.width, picture.height) == (100, 80)
    found = recognise(tmp_path)
    assert found is not None
    assert found.name == "hico"
    objects, verbs = hico_names()
    assert (len(objects), len(verbs), verbs[57], verbs[76]) == (80, 117, "no_interaction", "ride")


def test_vrd_joins_boxes_that_several_relations_name(tmp_path: Path) -> None:
    (picture,) = open_records(vrd(tmp_path), "train", "boxes")
    assert picture.names == ("person", "horse")
    np.testing.assert_allclose(picture.boxes, [[0, 0, 0.5, 0.5], [0.5, 0.5, 1, 1]])
    assert picture.relations == ((0, "on", 1), (1, "next to", 0))


def changed(value: Any, *path: Any, to: Any) -> Any:
    copied = json.loads(json.dumps(value))
    place = copied
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = to
    return copied


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "no list of photos"),
        ([3], "a mapping was expected"),
        ([changed(HICO, "file_name", to="b.jpg")], "b.jpg is missing"),
        ([changed(HICO, "annotations", 0, "bbox", to=[1, 2])], "has 2 numbers"),
        ([changed(HICO, "annotations", 0, "category_id", to=12)], "none of COCO's 80"),
        ([changed(HICO, "hoi_annotation", 0, "category_id", to=118)], "none of HICO's 1 to 117"),
        ([changed(HICO, "hoi_annotation", 0, "subject_id", to="x")], '"subject_id" is'),
    ],
)
def test_a_broken_hico_file_is_told(tmp_path: Path, content: Any, message: str) -> None:
    with pytest.raises(SaccadeError, match=message):
        open_records(hico(tmp_path, content), "train", "boxes")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "no mapping from photos"),
        (changed(VRD, "a.jpg", to=3), "a list was expected"),
        (changed(VRD, "a.jpg", 0, "predicate", to=2), '"predicate" is 2, there are 2 names'),
        (changed(VRD, "a.jpg", 0, "subject", to=None), "a mapping was expected"),
        (changed(VRD, "a.jpg", 0, "object", "bbox", to=[1, 2, 3, "x"]), "a number was expected"),
    ],
)
def test_a_broken_vrd_file_is_told(tmp_path: Path, content: Any, message: str) -> None:
    with pytest.raises(SaccadeError, match=message):
        open_records(vrd(tmp_path, content), "train", "boxes")


def test_what_is_missing_is_told(tmp_path: Path) -> None:
    with pytest.raises(SaccadeError, match=r"trainval_hico\.json is missing"):
        open_records(DataConfig("hico", root=tmp_path), "train", "boxes")
    (tmp_path / "anno_bbox.mat").write_bytes(b"MATLAB")
    with pytest.raises(SaccadeError, match="hoi_annotation"):
        open_records(DataConfig("hico", root=tmp_path), "train", "boxes")
    with pytest.raises(SaccadeError, match=r"annotations_train\.json is missing"):
        open_records(DataConfig("vrd", root=tmp_path), "train", "boxes")
    broken = vrd(tmp_path / "vrd")
    (tmp_path / "vrd" / "sg_train_images" / "a.jpg").write_bytes(b"no photo")
    with pytest.raises(SaccadeError, match="is no photo"):
        open_records(broken, "train", "boxes")
    (tmp_path / "vrd" / "objects.json").write_text("{}")
    with pytest.raises(SaccadeError, match="no list of names"):
        open_records(broken, "train", "boxes")
