"""Visual Genome's four files, one photo an item."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from photo_samples import genome_folder, write_value

from saccade.core.errors import SaccadeError
from saccade.data import DataConfig, open_records
from saccade.data.datasets.photos.visual_genome import open_visual_genome_boxes, read_regions, read_relations


def test_objects_have_names_attributes_and_boxes_cut_at_the_border(tmp_path: Path) -> None:
    first, second = open_visual_genome_boxes("all", genome_folder(tmp_path))
    assert first.names[:2] == ("dog", "ball")  # the ghost lies beyond the photo
    assert first.attributes[:2] == (("wet",), ())
    np.testing.assert_allclose(first.boxes[:2], [[0.1, 0.1, 0.6, 0.6], [0.75, 2 / 3, 1, 1]], rtol=1e-6)
    assert first.path == tmp_path / "VG_100K" / "1.jpg"
    assert second.path == tmp_path / "VG_100K_2" / "20.jpg"


def test_every_twentieth_photo_is_dev(tmp_path: Path) -> None:
    root = genome_folder(tmp_path)
    assert [p.id for p in open_visual_genome_boxes("train", root)] == ["1"]
    assert [p.id for p in open_visual_genome_boxes("val", root)] == ["20"]
    with pytest.raises(SaccadeError, match='no split "test"'):
        open_visual_genome_boxes("test", root)


def test_objects_without_the_file_of_attributes(tmp_path: Path) -> None:
    root = genome_folder(tmp_path)
    for name in ("attributes", "relationships"):
        (root / f"{name}.json").unlink()
    thing = {"x": 0, "y": 0, "w": 4, "h": 3, "names": ["tree"], "synsets": ["tree.n.01"]}
    write_value(root / "objects.json", [{"image_id": 1, "objects": [thing]}])
    (picture,) = open_visual_genome_boxes("all", root)
    assert (picture.names, picture.attributes) == (("tree",), ((),))


def test_regions_and_relations(tmp_path: Path) -> None:
    root = genome_folder(tmp_path)
    ((image, (region,)),) = read_regions(root)
    assert (image.id, region.text, region.box.tolist()) == (1, "a wet dog", [0, 0, 0.5, 1])
    ((_, (relation,)),) = read_relations(root)
    assert (relation.subject.name, relation.predicate, relation.object.name) == ("dog", "chases", "ball")
    np.testing.assert_allclose(relation.object.box, [0.75, 2 / 3, 0.875, 25 / 30], rtol=1e-6)


def test_a_detector_gets_the_relations_and_the_things_that_only_they_name(tmp_path: Path) -> None:
    root = genome_folder(tmp_path)
    first, second = open_visual_genome_boxes("all", root)
    (triplet,) = first.relations
    assert [first.names[i] for i in triplet[::2]] == ["dog", "ball"]
    assert triplet[1] == "chases"
    np.testing.assert_allclose(first.boxes[triplet[2]], [0.75, 2 / 3, 0.875, 25 / 30], rtol=1e-6)
    assert len(first.names) == len(first.boxes) == len(first.attributes)
    (root / "relationships.json").unlink()
    assert open_visual_genome_boxes("all", root)[0].relations == second.relations == ()


def test_a_dense_captioner_gets_the_described_regions(tmp_path: Path) -> None:
    root = genome_folder(tmp_path)
    ((id, photo, regions),) = open_records(DataConfig("visual_genome", root), "all", "phrases")
    assert (id, photo, regions.phrases) == ("1", root / "VG_100K" / "1.jpg", (("a wet dog",),))


@pytest.mark.parametrize(
    ("file", "value", "sentence"),
    [
        ("attributes", {}, None),
        ("attributes", {"a": [1]}, "attributes.json is a mapping, a list of photos was expected"),
        (
            "attributes",
            [{"image_id": 3, "attributes": []}],
            "attributes.json, [0]: the photo 3 is not in image_data.json",
        ),
        ("attributes", [{"image_id": 1}], '[0]: "attributes" is missing, a list was expected'),
        ("attributes", [{"image_id": 1, "attributes": [{"x": "1"}]}], "[0].attributes[0]: \"x\" is '1', a number"),
        ("image_data", [{"image_id": 1, "width": 0, "height": 3}], 'image_data.json, [0]: "width" is 0'),
    ],
)
def test_a_wrong_field_is_named(tmp_path: Path, file: str, value: Any, sentence: str | None) -> None:
    root = genome_folder(tmp_path)
    write_value(root / f"{file}.json", value)
    if sentence is None:
        assert open_visual_genome_boxes("all", root) == ()
        return
    with pytest.raises(SaccadeError) as error:
        open_visual_genome_boxes("all", root)
    assert sentence in str(error.value)


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    root = genome_folder(tmp_path)
    (root / "VG_100K_2" / "20.jpg").unlink()
    with pytest.raises(SaccadeError, match=r"20\.jpg is missing"):
        open_visual_genome_boxes("all", root)
    (root / "image_data.json").unlink()
    with pytest.raises(SaccadeError, match=r"image_data.json is missing: Visual Genome is"):
        open_visual_genome_boxes("all", root)
