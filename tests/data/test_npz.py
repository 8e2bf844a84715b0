"""One .npz or .npy file a picture: every tool's names, boxes kept, nothing unpickled, and one sentence for the rest."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import toy_arrays as toy
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from test_data_cli import GOLDEN, saccade_data

from saccade.core.errors import SaccadeError
from saccade.data import FeatureStore
from saccade.data.formats.arrays import ArrayPictures, NpzFolder, read_arrays, regions_of
from saccade.data.formats.regions import read_sizes


class Explosive:
    """A pickle of this raises if anything unpickles it."""

    def __reduce__(self) -> Any:
        return _explode, ()


def _explode() -> None:
    raise AssertionError("something was unpickled")


def assert_toy(pictures: ArrayPictures, boxes: bool = True, sizes: bool = True) -> None:
    """The toy pictures, as they were."""
    assert tuple(sorted(pictures.ids)) == toy.IDS
    assert pictures.dim == toy.DIM
    for n, id in enumerate(pictures.ids):
        picture = pictures.get(n)
        assert picture.id == id
        np.testing.assert_array_equal(picture.features, toy.features(id))
        expected = toy.unit_boxes(id) if boxes else np.tile(np.array([0, 0, 1, 1], np.float32), (len(picture.boxes), 1))
        np.testing.assert_allclose(picture.boxes, expected, atol=1e-6)
        assert (picture.width, picture.height) == (toy.SIZES[id] if sizes else (0, 0))
    assert pictures.batch([0, 1]).mask.sum(1).tolist() == [toy.COUNTS[id] for id in pictures.ids[:2]]


def test_the_folders_of_image_captioning_pytorch(tmp_path: Path) -> None:
    folder = toy.write_cocobu(tmp_path)
    assert_toy(NpzFolder(folder, read_sizes(toy.write_sizes(tmp_path / "other.tsv"))))
    unknown = NpzFolder(folder)
    assert "give --sizes" in unknown.boxes
    with pytest.raises(SaccadeError, match='the size of "184613" is not known: give --sizes FILE'):
        unknown.get(0)


def test_boxes_thrown_away_are_the_whole_picture(tmp_path: Path) -> None:
    folder = toy.write_cocobu(tmp_path).rename(tmp_path / "features")
    assert_toy(NpzFolder(folder), boxes=False, sizes=False)
    assert NpzFolder(folder).boxes.startswith("missing")


def test_a_detectors_npz_with_a_pickled_note_inside(tmp_path: Path) -> None:
    """bottom-up attention in PyTorch: x, bbox, image_w, image_h, and `info`, a pickle, which is not looked at."""
    note = np.array([Explosive()], dtype=object)
    for id in toy.IDS:
        width, height = toy.SIZES[id]
        arrays: dict[str, Any] = {"x": toy.features(id), "bbox": toy.pixel_boxes(id), "info": note}
        arrays |= {"num_bbox": toy.COUNTS[id], "image_h": height, "image_w": width}
        (tmp_path / f"{id}.npz").write_bytes(toy.npz_bytes(**arrays))
    assert_toy(NpzFolder(tmp_path))


def test_uniters_npz_with_boxes_in_0_to_1(tmp_path: Path) -> None:
    for id in toy.IDS:
        boxes = toy.unit_boxes(id)
        six = np.concatenate([boxes, boxes[:, 2:] - boxes[:, :2]], axis=1)
        scores = np.linspace(0.2, 0.9, toy.COUNTS[id]).astype(np.float16)
        (tmp_path / f"{id}.npz").write_bytes(toy.npz_bytes(features=toy.features(id), norm_bb=six, conf=scores))
    pictures = NpzFolder(tmp_path)
    assert_toy(pictures, sizes=False)
    found = pictures.get(0).scores
    assert found is not None
    assert found[-1] == pytest.approx(0.9, abs=1e-3)


def test_mmfs_folder_is_read_without_its_pickles(tmp_path: Path) -> None:
    for id in toy.IDS:
        (tmp_path / "train").mkdir(exist_ok=True)
        np.save(tmp_path / "train" / f"{id}.npy", toy.features(id))
        np.save(tmp_path / "train" / f"{id}_info.npy", np.array(Explosive(), dtype=object))
    pictures = NpzFolder(tmp_path)
    assert pictures.ids == tuple(f"train/{id}" for id in toy.IDS)
    assert pictures.boxes == "missing: they lie in 3 pickled *_info.npy files, which are not read"
    np.testing.assert_array_equal(pictures.get(1).features, toy.features(toy.IDS[1]))
    assert_toy(NpzFolder(tmp_path / "train"), boxes=False, sizes=False)


@pytest.mark.parametrize("shape", [(2, 3, 5), (1, 2, 3, 5)])
def test_a_grid_becomes_its_cells_row_by_row(shape: tuple[int, ...]) -> None:
    array = np.arange(30, dtype=np.float32).reshape(shape)
    picture = regions_of("a", {"feat": array}, "here", 5)
    np.testing.assert_array_equal(picture.features, np.arange(30).reshape(6, 5))
    np.testing.assert_allclose(picture.boxes[4], [1 / 3, 1 / 2, 2 / 3, 1])
    with pytest.raises(SaccadeError, match=r"shape \[9, 2, 2\], \[rows, columns, dim\] was expected"):
        regions_of("a", {"feat": np.zeros((9, 2, 2), np.float32)}, "here", 2)


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"fc": np.zeros(3)}, "there are no features"),
        ({"feat": np.zeros((2, 3)), "bbox": np.zeros((3, 4))}, r"boxes have shape \[3, 4\] for 2 regions"),
        ({"feat": np.zeros((2, 3)), "norm_bb": np.full((2, 6), 1.2)}, "a box leaves the picture"),
        ({"feat": np.zeros((2, 3)), "norm_bb": np.full((2, 6), np.nan)}, "a box leaves the picture"),
        ({"feat": np.zeros((2, 4))}, r"features have shape \[2, 4\], \[regions, 3\] was expected"),
        ({"feat": np.full((2, 3), np.inf)}, "the features hold NaN or infinity"),
        ({"feat": np.zeros(3)}, r"features have shape \[3\]"),
        ({"feat": np.zeros((2, 3)), "conf": np.zeros(3)}, r"scores of shape \[3\] for 2 regions"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(arrays: dict[str, np.ndarray], sentence: str) -> None:
    with pytest.raises(SaccadeError, match=sentence) as caught:
        regions_of("a", arrays, "here", 3, (10, 10))
    assert str(caught.value).startswith("here: ")


def test_pickles_in_the_place_of_features_are_refused_unread(tmp_path: Path) -> None:
    np.save(tmp_path / "1.npy", np.array({"features": Explosive()}, dtype=object))
    (tmp_path / "2.npz").write_bytes(toy.npz_bytes(feat=np.array([Explosive()], dtype=object)))
    (tmp_path / "3.npy").write_bytes(pickle.dumps(Explosive()))
    pictures = NpzFolder(tmp_path)
    for n, sentence in enumerate(["1.npy holds pickled", "2.npz holds pickled", "3.npy is cut short or is not"]):
        with pytest.raises(SaccadeError, match=sentence):
            pictures.arrays(n)


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    folder = toy.write_cocobu(tmp_path)
    toy.write_sizes(tmp_path / "sizes.tsv")
    (tmp_path / "cocobu_box" / "391895.npy").unlink()
    (tmp_path / "cocobu_att" / "522418.npz").write_bytes(b"PK\x03\x04 and so on")
    result = saccade_data("check", folder)
    assert result.exit_code == 2
    assert "391895.npy is missing" in result.output
    assert "522418.npz is cut short or is not a .npz or .npy file" in result.output
    assert "2 problems" in result.output
    with pytest.raises(SaccadeError, match=r"in folders of their own: give .*cocobu_att"):
        saccade_data("info", tmp_path)
    with pytest.raises(SaccadeError, match=r"--sizes and --ids are for .npz, HDF5 and LMDB files"):
        saccade_data("convert", GOLDEN / "sample.tsv", tmp_path / "s", "--sizes", tmp_path / "sizes.tsv")
    np.save(folder / "391895.npy", toy.features("391895"))
    with pytest.raises(SaccadeError, match="are the same picture"):
        len(NpzFolder(folder))


def test_from_npz_to_a_store_by_command_with_the_boxes_kept(tmp_path: Path) -> None:
    folder = toy.write_cocobu(tmp_path)
    assert "in pixels of pictures whose sizes are not known" in saccade_data("info", folder).output
    assert "1 problem" in saccade_data("check", folder).output  # and not one for each picture
    saccade_data("convert", folder, tmp_path / "store", "--sizes", toy.write_sizes(tmp_path / "sizes.tsv"))
    store = FeatureStore.open(tmp_path / "store")
    assert store.ids == toy.IDS
    assert store.metadata == {}
    for picture in store:
        np.testing.assert_array_equal(picture.features, toy.features(picture.id))
        np.testing.assert_allclose(picture.boxes, toy.unit_boxes(picture.id), atol=1e-6)
        assert (picture.width, picture.height) == toy.SIZES[picture.id]
    output = saccade_data("info", folder).output  # sizes.tsv beside the folder is found by itself
    for words in ("one file a picture", "pictures", "3", "kept", "feat [2, 8] float32"):
        assert words in output
    assert "no problems" in saccade_data("check", folder).output


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("a.json", "{", "not valid JSON"),
        ("a.json", "[" * 100_000, "not usable JSON"),
        ("a.json", "[1]", 'a list "images" with width and height'),
        ("a.json", '{"a": [1, "x"]}', "entry 1: height is 'x'"),
        ("a.json", '{"a": 3}', "entry 1: width is None"),
        ("a.json", '{"images": [{"width": 3, "height": 4}]}', "entry 1: no picture is named"),
        ("a.tsv", "image\twidth\theight\nx\t3\t0\n", "entry 1: height is '0'"),
        ("a.tsv", "image\twidth\nx\t3\n", "entry 1: height is None"),
        ("a.tsv", "", "holds no sizes"),
        ("a.tsv.gz", "image", "not a whole gzip file"),
    ],
)
def test_a_file_of_sizes_that_is_none(tmp_path: Path, name: str, text: str, sentence: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(SaccadeError, match=sentence):
        read_sizes(tmp_path / name)


def test_sizes_from_cocos_annotations(tmp_path: Path) -> None:
    entry = '{"id": 391895, "file_name": "COCO_val2014_000000391895.jpg", "width": 640, "height": 360}'
    (tmp_path / "instances.json").write_text(f'{{"images": [{entry}], "annotations": []}}')
    sizes = read_sizes(tmp_path / "instances.json")
    assert sizes["391895"] == sizes["COCO_val2014_000000391895"] == (640, 360)


arrays_of_any_kind = hnp.arrays(
    st.sampled_from([np.float32, np.float16, np.float64, np.int32, np.uint8]), hnp.array_shapes(max_dims=4, max_side=4)
)


@settings(max_examples=60, deadline=None)
@given(array=arrays_of_any_kind, order=st.sampled_from("CF"))
def test_any_array_comes_back_from_npz_and_npy(array: np.ndarray, order: Any) -> None:
    array = np.asarray(array, order=order)
    stream = io.BytesIO()
    np.save(stream, array)
    np.testing.assert_array_equal(read_arrays(stream.getvalue(), "here")["features"], array)
    found = read_arrays(toy.npz_bytes(feat=array, other=array), "here")
    assert list(found) == ["feat"]
    np.testing.assert_array_equal(found["feat"], array)
    assert found["feat"].dtype == array.dtype


@settings(max_examples=300, deadline=None)
@given(at=st.integers(0, 2000), byte=st.integers(0, 255), cut=st.integers(0, 2000), packed=st.booleans())
@example(at=0, byte=0, cut=2000, packed=True)
def test_damaged_bytes_give_arrays_or_one_sentence(at: int, byte: int, cut: int, packed: bool) -> None:
    arrays = {"feat": toy.features("391895"), "bbox": toy.pixel_boxes("391895"), "image_w": 640, "image_h": 480}
    content = bytearray(toy.npz_bytes(**arrays) if packed else toy.npy_bytes(toy.features("391895")))
    content[at % len(content)] = byte
    del content[cut:]
    try:
        picture = regions_of("a", read_arrays(bytes(content), "here"), "here", toy.DIM)
        assert len(picture.features) == len(picture.boxes)
    except SaccadeError as error:
        sentence = str(error)
        if not sentence.startswith("here"):
            raise


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_give_one_sentence(content: bytes) -> None:
    with pytest.raises(SaccadeError):
        regions_of("a", read_arrays(content, "here"), "here", 4)
