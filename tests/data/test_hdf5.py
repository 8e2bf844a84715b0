"""HDF5 feature files in each of their layouts, with the boxes kept, and one sentence for what is broken."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import toy_arrays as toy
from test_data_cli import saccade_data
from test_npz import assert_toy

from saccade.core.errors import SaccadeError
from saccade.data import FeatureStore
from saccade.data.formats.hdf5 import open_hdf5
from saccade.data.formats.regions import read_sizes


def write(path: Path, **tables: Any) -> Path:
    with h5py.File(path, "w") as file:
        for name, values in tables.items():
            file.create_dataset(name.replace("__", "/"), data=values)
    return path


def spatial(id: str) -> np.ndarray:
    """bottom-up-attention-vqa's six numbers a box."""
    boxes = toy.unit_boxes(id)
    return np.concatenate([boxes, boxes[:, 2:] - boxes[:, :2]], axis=1)


def adaptive(path: Path) -> Path:
    """All regions in one table, `pos_boxes` saying whose they are; the ids in JSON, in another order than the rows."""
    ends = np.cumsum([0, *(toy.COUNTS[id] for id in toy.IDS)])
    write(
        path,
        image_features=np.concatenate([toy.features(id) for id in toy.IDS]),
        image_bb=np.concatenate([toy.pixel_boxes(id) for id in toy.IDS]),
        spatial_features=np.concatenate([spatial(id) for id in toy.IDS]),
        pos_boxes=np.stack([ends[:-1], ends[1:]], axis=1).astype(np.int32),
    )
    rows = ", ".join(f'"{id}": {toy.IDS.index(id)}' for id in reversed(toy.IDS))
    path.with_name(f"{path.stem}_imgid2idx.json").write_text(f"{{{rows}}}")
    return path


def test_tables_of_pictures_of_different_length_know_even_the_sizes(tmp_path: Path) -> None:
    pictures = open_hdf5(adaptive(tmp_path / "train.hdf5"))
    assert pictures.ids == toy.IDS
    assert pictures.boxes == "kept"
    assert_toy(pictures)  # sizes too: the same boxes in pixels and in 0..1 tell them


def fixed(path: Path, **more: Any) -> Path:
    """Two regions of each picture, as the `36` files have 36."""
    return write(
        path,
        image_features=np.stack([toy.features(id)[:2] for id in toy.IDS]),
        image_bb=np.stack([toy.pixel_boxes(id)[:2] for id in toy.IDS]),
        spatial_features=np.stack([spatial(id)[:2] for id in toy.IDS]),
        **more,
    )


@pytest.mark.parametrize("ids", ["_ids.json", "_ids.txt", "inside", "given"])
def test_tables_of_pictures_of_one_length_with_their_ids_from_anywhere(tmp_path: Path, ids: str) -> None:
    listed = None
    if ids == "inside":
        path = fixed(tmp_path / "val36.hdf5", image_id=[int(id) for id in toy.IDS])
    else:
        path = fixed(tmp_path / "val36.hdf5")
        listed = tmp_path / ("elsewhere.txt" if ids == "given" else f"val36{ids}")
        listed.write_text("\n".join(toy.IDS) if listed.suffix == ".txt" else f"[{', '.join(toy.IDS)}]")
    pictures = open_hdf5(path, ids=listed if ids == "given" else None)
    assert pictures.ids == toy.IDS
    for n, id in enumerate(toy.IDS):
        np.testing.assert_array_equal(pictures.get(n).features, toy.features(id)[:2])
        np.testing.assert_allclose(pictures.get(n).boxes, toy.unit_boxes(id)[:2], atol=1e-6)


def test_ids_as_text_inside_the_file(tmp_path: Path) -> None:
    assert open_hdf5(fixed(tmp_path / "a.h5", ids=[f"{id}.jpg" for id in toy.IDS])).ids[0] == "184613.jpg"


def test_ids_kept_in_a_pickle_are_asked_for_in_another_form(tmp_path: Path) -> None:
    path = fixed(tmp_path / "train36.hdf5")
    (tmp_path / "train36_imgid2idx.pkl").write_bytes(pickle.dumps({391895: 0}))
    with pytest.raises(SaccadeError, match=r"train36_imgid2idx.pkl is a pickle, which is not read.*give --ids FILE"):
        len(open_hdf5(path))
    with pytest.raises(SaccadeError, match="is a pickle, which is not read"):
        len(open_hdf5(path, ids=tmp_path / "train36_imgid2idx.pkl"))


def test_one_array_a_picture_with_boxes_in_the_file_beside(tmp_path: Path) -> None:
    path = write(tmp_path / "cocobu_att.h5", **{id: toy.features(id) for id in toy.IDS})
    assert_toy(open_hdf5(path), boxes=False, sizes=False)
    write(tmp_path / "cocobu_box.h5", **{id: toy.pixel_boxes(id) for id in toy.IDS})
    assert_toy(open_hdf5(path, read_sizes(toy.write_sizes(tmp_path / "sizes.tsv"))))


def test_one_group_a_picture(tmp_path: Path) -> None:
    fields: dict[str, Any] = {}
    for id in toy.IDS:
        fields |= {f"{id}__features": toy.features(id), f"{id}__boxes": toy.pixel_boxes(id)}
        fields |= {f"{id}__img_w": toy.SIZES[id][0], f"{id}__img_h": toy.SIZES[id][1], f"{id}__objects_id": [1]}
    assert_toy(open_hdf5(write(tmp_path / "coco.h5", **fields)))


def test_a_source_travels_to_a_loaders_worker(tmp_path: Path) -> None:
    pictures = open_hdf5(adaptive(tmp_path / "train.hdf5"))
    pictures.get(0)
    assert_toy(pickle.loads(pickle.dumps(pictures)))


@pytest.mark.parametrize(
    ("tables", "sentence"),
    [
        ({"image_features": np.zeros((3, 4))}, r"/image_features has shape \[3, 4\], \[pictures, regions, dim\]"),
        ({"image_features": np.zeros((3, 2, 4)), "image_bb": np.zeros((2, 2, 4))}, r"image_bb has shape \[2, 2, 4\]"),
        ({"image_features": np.zeros((3, 4)), "pos_boxes": np.zeros((3, 3))}, r"pos_boxes has shape \[3, 3\]"),
        ({"image_features": np.zeros((3, 4)), "pos_boxes": [[0, 9]]}, "pos_boxes points out of the 3 rows"),
        ({"image_features": np.zeros((3, 2, 4)), "ids": [1, 1, 2]}, "the same id occurs twice"),
        ({"image_features": np.zeros((3, 2, 4)), "ids": [1, 2]}, "2 ids for the 3 pictures"),
        ({"image_features": [[["a"]]], "ids": [1]}, "holds values of type object, numbers were expected"),
        ({"391895": np.zeros(3)}, r"features have shape \[3\], \[regions, dim\] was expected"),
        ({"391895__image": np.zeros(3)}, "there are no features"),
        ({}, "is empty"),
    ],
)
def test_tables_that_do_not_fit_are_refused(tmp_path: Path, tables: dict[str, Any], sentence: str) -> None:
    path = write(tmp_path / "bad.h5", **tables)
    with pytest.raises(SaccadeError, match=sentence) as caught:
        open_hdf5(path).get(0)
    assert "bad.h5" in str(caught.value)


def test_broken_files_are_refused_by_name(tmp_path: Path) -> None:
    path = adaptive(tmp_path / "cut.hdf5")
    path.write_bytes(path.read_bytes()[:-300])
    with pytest.raises(SaccadeError, match=r"cut.hdf5 is cut short or is not an HDF5 file"):
        open_hdf5(path)
    with pytest.raises(SaccadeError, match=r"none.h5 does not exist"):
        open_hdf5(tmp_path / "none.h5")
    (tmp_path / "ids.json").write_text('{"a": "b"}')
    with pytest.raises(SaccadeError, match="a list of ids or a table of ids and row numbers was expected"):
        len(open_hdf5(fixed(tmp_path / "a.h5"), ids=tmp_path / "ids.json"))


def test_the_commands_know_hdf5(tmp_path: Path) -> None:
    path = adaptive(tmp_path / "train.hdf5")
    for words in ("HDF5", "3, the first is 184613", "kept"):
        assert words in saccade_data("info", path).output
    assert "no problems" in saccade_data("check", path).output
    saccade_data("convert", path, tmp_path / "store")
    assert FeatureStore.open(tmp_path / "store").ids == toy.IDS
    saccade_data("convert", path, tmp_path / "back.tsv", "--to", "tsv")  # sizes and boxes are there: even this goes
    assert "no problems" in saccade_data("check", tmp_path / "back.tsv").output
    with h5py.File(path, "r+") as file:
        file["image_features"][4, 0] = np.nan
    result = saccade_data("check", path)
    assert 'picture "391895": the features hold NaN' in result.output
    assert "1 problem" in result.output
