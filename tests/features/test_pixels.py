"""Photos as pixels: decoded once, kept in the cache, decoded again when a photo changes, and never half."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from photo_samples import make_photo
from PIL import Image

from saccade.batch import PictureBatch
from saccade.core.errors import SaccadeError
from saccade.data import DataConfig
from saccade.data.records import CaptionedPhotos
from saccade.features import splits
from saccade.vision.pictures import as_array

NAMES = ("d.png", "a.png", "c.png", "b.png")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "pixels"


@pytest.fixture
def photos(tmp_path: Path) -> CaptionedPhotos:
    paths = tuple(make_photo(tmp_path / "photos" / name) for name in NAMES)
    return CaptionedPhotos("toy", "train", NAMES, paths, ("a dog", "a cat"), np.array([0, 3]))


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the photos that are decoded, as they are."""
    names: list[str] = []

    def counting(path: Path, where: str, size: int) -> np.ndarray:
        names.append(path.name)
        return as_array(path, where, size)

    monkeypatch.setattr(splits, "as_array", counting)
    return names


def open_pixels(
    photos: CaptionedPhotos, size: int, progress: Callable[[int, int], None] | None = None
) -> splits.PixelSource:
    return splits.open_pixels(photos.ids, photos.paths, size, progress)


def kept(cache: Path) -> list[Path]:
    return sorted(cache.iterdir()) if cache.exists() else []


def test_photos_come_as_they_are_in_the_order_asked_for(cache: Path, photos: CaptionedPhotos) -> None:
    source = open_pixels(photos, 16)
    assert (len(source), source.ids) == (4, NAMES)
    batch = source.batch([2, 0, 2])
    assert batch.ids == ("c.png", "d.png", "c.png")
    assert batch.pixels.dtype == torch.uint8
    for row, place in enumerate([2, 0, 2]):
        expected = as_array(photos.paths[place], size=16)
        assert np.array_equal(batch.pixels[row].numpy(), expected)
    batch.pixels.zero_()  # what a caller does to a batch stays with the batch
    assert source.batch([0]).pixels.any()


def test_a_photo_is_decoded_once(cache: Path, photos: CaptionedPhotos, decoded: list[str]) -> None:
    told: list[tuple[int, int]] = []
    first = open_pixels(photos, 16, lambda done, total: told.append((done, total)))
    assert sorted(decoded) == sorted(NAMES)
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]
    again = open_pixels(photos, 16)
    assert len(decoded) == 4
    assert torch.equal(again.batch(range(4)).pixels, first.batch(range(4)).pixels)
    (file,) = kept(cache)
    assert file.suffix == ".npy"
    open_pixels(photos, 8)  # another size is another file
    assert len(decoded) == 8
    assert len(kept(cache)) == 2


def test_a_photo_that_changed_is_decoded_again(cache: Path, photos: CaptionedPhotos) -> None:
    before = open_pixels(photos, 16).batch(range(4)).pixels
    Image.new("RGB", (40, 30), "red").save(photos.paths[1])
    after = open_pixels(photos, 16).batch(range(4)).pixels
    assert after[1, 0, 0].tolist() == [255, 0, 0]
    assert torch.equal(after[[0, 2, 3]], before[[0, 2, 3]])
    facts = photos.paths[1].stat()
    os.utime(photos.paths[1], ns=(facts.st_atime_ns, facts.st_mtime_ns + 1))
    open_pixels(photos, 16)
    assert len(kept(cache)) == 3


@pytest.mark.parametrize("spoil", ["cut", "text", "gone"])
def test_a_broken_photo_is_named_and_leaves_nothing(cache: Path, photos: CaptionedPhotos, spoil: str) -> None:
    broken = photos.paths[2]
    if spoil == "cut":
        broken.write_bytes(broken.read_bytes()[:60])
    elif spoil == "text":
        broken.write_text("hello")
    else:
        broken.unlink()
    with pytest.raises(SaccadeError, match=r"c\.png") as caught:
        open_pixels(photos, 16)
    assert "\n" not in str(caught.value)
    assert kept(cache) == []
    make_photo(broken)
    assert len(open_pixels(photos, 16)) == 4


def test_a_full_disk_leaves_nothing(cache: Path, photos: CaptionedPhotos, full_disk: Callable[[int], None]) -> None:
    full_disk(1)
    with pytest.raises(SaccadeError, match="the disk is full"):
        open_pixels(photos, 16)
    assert kept(cache) == []


@pytest.mark.parametrize("size", [0, 40, 2000])
def test_a_damaged_file_is_named_with_what_to_do(cache: Path, photos: CaptionedPhotos, size: int) -> None:
    open_pixels(photos, 16)
    (file,) = kept(cache)
    file.write_bytes(file.read_bytes()[:size])
    with pytest.raises(SaccadeError, match=f"{file.name} is damaged: remove it, and it is made again"):
        open_pixels(photos, 16)
    np.save(file, np.zeros((3, 16, 16, 3), np.uint8))  # whole, and of other photos
    with pytest.raises(SaccadeError, match="is damaged"):
        open_pixels(photos, 16)
    file.unlink()
    assert len(open_pixels(photos, 16)) == 4


def test_the_worlds_pictures_come_as_pixels_too(cache: Path) -> None:
    """Drawn once, stretched to the size that is asked for, with their captions; a limit takes the first."""
    config = DataConfig("world", pictures=50)
    drawn = splits.open_split(config, "dev", 32)
    pictures = drawn.images.batch([1, 0])
    assert isinstance(pictures, PictureBatch)
    assert pictures.pixels.shape == (2, 32, 32, 3)
    files = [path for path in kept(cache) if path.suffix == ".npy"]
    assert len(files) == 1
    again = splits.open_split(replace(config, limit=1), "dev", 32)
    assert (len(again.images), set(again.image_of_text.tolist())) == (1, {0})
    assert torch.equal(again.images.batch([0]).pixels[0], pictures.pixels[1])  # type: ignore[union-attr]
    assert [path for path in kept(cache) if path.suffix == ".npy"] == files
    regions = splits.open_split(config, "dev")
    assert regions.texts == drawn.texts
