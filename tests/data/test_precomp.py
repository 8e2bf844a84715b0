"""SCAN's precomputed folders: mapped, never loaded whole, with captions owned as the counts say."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from toy_pictures import folder_bytes, make_pictures, write_store

from saccade.core.errors import SaccadeError
from saccade.data import Caption, CaptionedImages, FeatureStore
from saccade.data.formats.precomp import PrecompImages, open_precomp, write_precomp
from saccade.data.store.sources import join_captions


def save(folder: Path, images: np.ndarray, captions: int, split: str = "test") -> np.ndarray:
    np.save(folder / f"{split}_ims.npy", images)
    (folder / f"{split}_caps.txt").write_text("".join(f"caption {i}\n" for i in range(captions)), encoding="utf-8")
    return images


def some(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def toy_split(folder: Path, count: int = 4, per_image: int = 3) -> CaptionedImages:
    store = FeatureStore.open(write_store(folder, make_pictures(count, regions=5)))
    captions = [Caption(id, f"{id} ➤ {n}") for n in range(per_image) for id in store.ids]
    return join_captions("toy", "dev", store, captions)


@pytest.mark.parametrize("per_image", [1, 2, 5])
def test_a_caption_belongs_to_the_picture_its_number_says(tmp_path: Path, per_image: int) -> None:
    images = save(tmp_path, some(4, 3, 8), 4 * per_image)
    data = open_precomp("test", tmp_path)
    assert data.image_of_text.tolist() == [c // per_image for c in range(4 * per_image)]
    batch = data.images.batch([2, 0])
    np.testing.assert_array_equal(batch.features, images[[2, 0]])
    assert batch.mask.all()


def test_pictures_repeated_once_per_caption_are_counted_once(tmp_path: Path) -> None:
    images = some(4, 3, 8)
    save(tmp_path, images.repeat(5, axis=0), 20)
    data = open_precomp("test", tmp_path)
    assert len(data.images) == 4
    assert data.image_of_text.tolist() == [c // 5 for c in range(20)]
    np.testing.assert_array_equal(data.images.batch(range(4)).features, images)
    assert len(open_precomp("test", tmp_path, captions_per_image=1).images) == 20


def test_equal_neighbours_without_a_rhythm_are_kept_apart(tmp_path: Path) -> None:
    images = some(6, 3, 8)
    images[1] = images[0]  # a duplicate photo, not a repeated array
    save(tmp_path, images, 6)
    assert len(open_precomp("test", tmp_path).images) == 6


def test_the_array_is_mapped_not_loaded(tmp_path: Path) -> None:
    save(tmp_path, some(50, 3, 8), 50)
    images = open_precomp("test", tmp_path).images
    assert isinstance(images, PrecompImages)
    assert isinstance(images.array, np.memmap)
    assert isinstance(images.get(7).features, np.memmap)


def test_a_worker_process_maps_the_file_itself(tmp_path: Path) -> None:
    images = save(tmp_path, some(50, 3, 8), 50)
    sent = pickle.dumps(open_precomp("test", tmp_path).images)
    assert len(sent) < 1000
    np.testing.assert_array_equal(pickle.loads(sent).batch([49]).features[0], images[49])


def test_lost_boxes_are_whole_pictures_and_said_to_be_missing(tmp_path: Path) -> None:
    save(tmp_path, some(2, 3, 8), 2)
    images = open_precomp("test", tmp_path).images
    assert isinstance(images, PrecompImages)
    assert not images.has_boxes
    assert images.batch([1]).boxes.tolist() == [[[0, 0, 1, 1]] * 3]


@pytest.mark.parametrize("dtype", ["float16", "float64", "int64"])
def test_other_number_types_become_float32(tmp_path: Path, dtype: str) -> None:
    images = save(tmp_path, (some(2, 3, 8) * 10).astype(dtype), 2)
    np.testing.assert_array_equal(
        open_precomp("test", tmp_path).images.batch([0, 1]).features, images.astype("float32")
    )


def test_captions_are_utf8_whatever_the_locale_and_only_line_feeds_end_them(tmp_path: Path) -> None:
    save(tmp_path, some(2, 3, 8), 2)
    (tmp_path / "test_caps.txt").write_bytes("ein Bär\u2028tanzt\r\nœuvre\n".encode())
    assert open_precomp("test", tmp_path).texts == ("ein Bär\u2028tanzt", "œuvre")


def test_written_splits_read_back_with_boxes_sizes_and_ids(tmp_path: Path) -> None:
    data = toy_split(tmp_path / "s")
    write_precomp(tmp_path / "p", data)
    found = open_precomp("dev", tmp_path / "p")
    assert found.images.ids == data.images.ids
    np.testing.assert_array_equal(found.images.batch(range(4)).features, data.images.batch(range(4)).features)
    np.testing.assert_array_equal(found.images.batch(range(4)).boxes, data.images.batch(range(4)).boxes)
    assert isinstance(found.images, PrecompImages)
    assert found.images.get(3).height == 483
    for image in range(4):
        assert [found.texts[t] for t in found.texts_of_image[image]] == [
            data.texts[t] for t in data.texts_of_image[image]
        ]
    assert np.load(tmp_path / "p" / "dev_ims.npy").shape == (4, 5, 6)  # what the official loader would see


def test_ids_that_do_not_fit_are_not_used(tmp_path: Path) -> None:
    save(tmp_path, some(2, 3, 8), 2)
    (tmp_path / "test_ids.txt").write_text("a\na\n")
    assert open_precomp("test", tmp_path).images.ids == ("test-000000", "test-000001")


def test_counts_that_do_not_divide_are_refused(tmp_path: Path) -> None:
    save(tmp_path, some(4, 3, 8), 10)
    with pytest.raises(SaccadeError, match=r"test_caps.txt has 10 captions for 4 pictures"):
        open_precomp("test", tmp_path)
    save(tmp_path, some(4, 3, 8), 8)
    with pytest.raises(SaccadeError, match="5 captions a picture was expected"):
        open_precomp("test", tmp_path, captions_per_image=5)
    with pytest.raises(SaccadeError, match="captions_per_image is 0"):
        open_precomp("test", tmp_path, captions_per_image=0)
    (tmp_path / "test_caps.txt").write_text("")
    with pytest.raises(SaccadeError, match="holds no captions"):
        open_precomp("test", tmp_path)


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(SaccadeError, match="needs a folder: give root=FOLDER"):
        open_precomp("test", None)
    with pytest.raises(SaccadeError, match="is not a folder"):
        open_precomp("test", tmp_path / "nowhere")
    with pytest.raises(SaccadeError, match=r"test_ims.npy is missing"):
        open_precomp("test", tmp_path)
    save(tmp_path, some(2, 3, 8), 2, split="train")
    with pytest.raises(SaccadeError, match='did you mean "train"'):
        open_precomp("trian", tmp_path)
    (tmp_path / "train_caps.txt").unlink()
    with pytest.raises(SaccadeError, match=r"train_caps.txt does not exist"):
        open_precomp("train", tmp_path)


def test_arrays_that_are_not_what_they_should_be(tmp_path: Path) -> None:
    path = tmp_path / "test_ims.npy"

    def sentence() -> str:
        with pytest.raises(SaccadeError, match=r"test_ims.npy") as error:
            open_precomp("test", tmp_path).images.batch([0, 1])
        return str(error.value)

    whole = save(tmp_path, some(2, 3, 8), 2)
    path.write_bytes(path.read_bytes()[:-10])
    assert "cut short" in sentence()
    path.write_bytes(b"not an array")
    assert "cut short or is not a .npy" in sentence()
    path.write_bytes(b"")
    assert "cut short" in sentence()
    np.save(path, whole[0])
    assert "shape [3, 8], [picture, region, dim] was expected" in sentence()
    np.save(path, whole[:0])
    assert "shape [0, 3, 8]" in sentence()
    np.save(path, np.array(["a", "b"]))
    assert "plain array of numbers" in sentence()
    np.save(path, np.array([{"a": 1}, None], dtype=object), allow_pickle=True)
    assert "Python objects" in sentence()
    with path.open("wb") as file:
        np.savez(file, a=whole)
    assert "not a .npy" in sentence()
    path.write_bytes(pickle.dumps(whole))
    assert "not a .npy" in sentence()
    whole[1, 2, 3] = np.nan
    np.save(path, whole)
    assert "picture 1 holds NaN" in sentence()


def test_bad_boxes_are_named(tmp_path: Path) -> None:
    save(tmp_path, some(2, 3, 8), 2)
    np.save(tmp_path / "test_boxes.npy", np.zeros((2, 4, 4)))
    with pytest.raises(SaccadeError, match=r"test_boxes.npy has shape \[2, 4, 4\]"):
        open_precomp("test", tmp_path)
    np.save(tmp_path / "test_boxes.npy", np.full((2, 3, 4), 200.0))
    with pytest.raises(SaccadeError, match=r"test_boxes.npy: picture 1: the box .* leaves 0..1"):
        open_precomp("test", tmp_path).images.batch([1])


def test_captions_that_are_not_utf8_are_refused(tmp_path: Path) -> None:
    save(tmp_path, some(2, 3, 8), 2)
    (tmp_path / "test_caps.txt").write_bytes(b"a b\xe4r\nb\n")
    with pytest.raises(SaccadeError, match=r"test_caps.txt is not UTF-8 text \(byte 3\)"):
        open_precomp("test", tmp_path)


def test_what_the_format_cannot_say_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    target = tmp_path / "p"
    ragged = FeatureStore.open(write_store(tmp_path / "ragged", make_pictures(6, seed=1)))
    first = next(n for n in range(6) if len(ragged.get(n).features))
    data = join_captions("toy", "dev", ragged, [Caption(id, "x") for id in ragged.ids[first:]])
    with pytest.raises(SaccadeError, match="needs the same number in all"):
        write_precomp(target, data)
    even = toy_split(tmp_path / "even")
    uneven = join_captions("toy", "dev", even.images, [Caption(i, "x") for i in (*even.images.ids, even.images.ids[0])])
    with pytest.raises(SaccadeError, match="have 1 to 2 captions"):
        write_precomp(target, uneven)
    assert not target.exists() or not folder_bytes(target)
    write_precomp(target, even)
    with pytest.raises(SaccadeError, match="exists already"):
        write_precomp(target, even)


@pytest.mark.parametrize("after", [1, 5])
def test_a_full_disk_leaves_no_half_split(tmp_path: Path, full_disk: Callable[[int], None], after: int) -> None:
    data = toy_split(tmp_path / "s")
    full_disk(after)
    with pytest.raises(SaccadeError, match="the disk is full"):
        write_precomp(tmp_path / "p", data)
    assert not (tmp_path / "p" / "dev_ims.npy").exists()
    assert not list((tmp_path / "p").glob(".*"))
