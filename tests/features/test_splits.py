"""Photos with captions as an extractor sees them, or as pixels: order, repairs, limits, and what is handed to a
reader.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from photo_samples import flickr8k_tables, make_photo, write_rows
from PIL import Image
from toy_pictures import make_pictures, write_store

from saccade.core.errors import SaccadeError
from saccade.data import Caption, DataConfig, reader, write_captions
from saccade.data.records import CaptionedPhotos
from saccade.data.store.sources import first_images
from saccade.features import open_split, splits
from saccade.features.splits import extract_split
from saccade.vision import RegionExtractor, load_extractor

EXTRACTOR = "grid:world@16"
NAMES = ("d.png", "a.png", "c.png", "b.png")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def photos(tmp_path: Path) -> CaptionedPhotos:
    """Four photos, not in the order of their names; the third has two sentences, and the last has none."""
    paths = tuple(make_photo(tmp_path / "photos" / name) for name in NAMES)
    texts = ("a dog", "a cat", "a cow", "an ox")
    return CaptionedPhotos("toy", "train", NAMES, paths, texts, np.array([2, 0, 1, 2]), ((80, 60),) * 4)


@pytest.fixture
def toy_source(photos: CaptionedPhotos) -> str:
    @reader("toy photos")
    def open_toy(split: str, root: Path | None, language: str = "en") -> CaptionedPhotos:
        texts = tuple(f"{language}: {text}" for text in photos.texts)
        return CaptionedPhotos("toy", split, photos.ids, photos.paths, texts, photos.image_of_text, photos.sizes)

    return "toy photos"


def test_photos_are_seen_in_their_own_order(photos: CaptionedPhotos) -> None:
    data = extract_split(photos, EXTRACTOR)
    assert tuple(data.images.ids) == NAMES
    assert (data.extractor, data.texts) == (EXTRACTOR, photos.texts)
    assert data.texts_of_image == ((1,), (2,), (0, 3), ())
    extractor = load_extractor(EXTRACTOR)
    for place, path in enumerate(photos.paths):
        expected = extractor.extract([path]).features
        torch.testing.assert_close(data.regions.batch([place]).features, expected, atol=1e-2, rtol=2e-3)  # float16


def test_what_was_seen_is_not_seen_again(photos: CaptionedPhotos, monkeypatch: pytest.MonkeyPatch) -> None:
    before = extract_split(photos, EXTRACTOR).regions.batch(range(4))
    extractor = load_extractor(EXTRACTOR)

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("it looked again")

    def blind(name: str, device: str) -> RegionExtractor:
        extractor.regions = refuse  # type: ignore[assignment,method-assign]
        return extractor

    monkeypatch.setattr(splits, "load_extractor", blind)
    after = extract_split(photos, EXTRACTOR).regions.batch(range(4))
    assert torch.equal(after.features, before.features)
    assert after.ids == NAMES


def test_a_broken_photo_is_named_and_a_repaired_one_seen(photos: CaptionedPhotos) -> None:
    broken = photos.paths[1]
    good = broken.read_bytes()
    broken.write_bytes(good[:60])
    for _ in range(2):  # the second time it is in the cache as broken
        with pytest.raises(SaccadeError, match=r"toy/train: .*a\.png.* damaged") as caught:
            extract_split(photos, EXTRACTOR)
        assert "\n" not in str(caught.value)
    broken.write_bytes(good)
    data = extract_split(photos, EXTRACTOR)
    assert tuple(data.images.ids) == NAMES
    expected = load_extractor(EXTRACTOR).extract([broken]).features
    torch.testing.assert_close(data.regions.batch([1]).features, expected, atol=1e-2, rtol=2e-3)


def test_a_photo_that_was_replaced_is_seen_anew(photos: CaptionedPhotos) -> None:
    before = extract_split(photos, EXTRACTOR).regions.batch(range(4)).features
    Image.effect_noise((40, 30), 90).convert("RGB").save(photos.paths[3])
    after = extract_split(photos, EXTRACTOR).regions.batch(range(4)).features
    assert torch.equal(after[:3], before[:3])
    assert not torch.allclose(after[3], before[3], atol=0.1)


def test_each_extractor_has_its_own_features(photos: CaptionedPhotos) -> None:
    assert extract_split(photos, "grid:world@16/1").regions.batch([0]).features.shape[1] == 1
    assert extract_split(photos, "grid:world@16/2").regions.batch([0]).features.shape[1] == 4


def test_a_limit_keeps_the_first_photos_and_their_sentences(photos: CaptionedPhotos, toy_source: str) -> None:
    fewer = first_images(photos, 2)
    assert (fewer.ids, fewer.paths, len(fewer.sizes)) == (NAMES[:2], photos.paths[:2], 2)
    assert fewer.texts == ("a cat", "a cow")
    assert fewer.image_of_text.tolist() == [0, 1]
    assert first_images(photos, 99).ids == NAMES
    for pixels in (None, 16):
        data = open_split(DataConfig(toy_source, limit=3, extractor=EXTRACTOR), "train", pixels)
        assert tuple(data.images.ids) == NAMES[:3]
        assert data.image_of_text.tolist() == [2, 0, 1, 2]
        for none in (0, -1):
            with pytest.raises(SaccadeError, match=f"a limit of {none} pictures leaves nothing to read"):
                open_split(DataConfig(toy_source, limit=none, extractor=EXTRACTOR), "train", pixels)


def test_a_split_of_pixels_knows_its_captions_and_has_no_regions(toy_source: str) -> None:
    data = open_split(DataConfig(toy_source), "train", pixels=16)
    assert data.images.batch([1]).ids == ("a.png",)
    assert data.texts_of_image[2] == (0, 3)
    assert data.extractor is None
    with pytest.raises(SaccadeError, match="toy/train holds pixels, regions were expected"):
        _ = data.regions


def test_features_have_no_pixels(tmp_path: Path) -> None:
    folder = write_store(tmp_path / "s", make_pictures(2))
    write_captions(folder / "captions.jsonl", [Caption("picture-1", "a", "train")])
    with pytest.raises(SaccadeError, match="data=store holds features, and a model that sees for itself needs photos"):
        open_split(DataConfig("store", folder), "train", pixels=16)


def test_the_language_reaches_the_reader(tmp_path: Path, toy_source: str) -> None:
    assert open_split(DataConfig(toy_source, language="fr"), "train", 16).texts[0] == "fr: a dog"
    assert open_split(DataConfig(toy_source), "train", 16).texts[0] == "en: a dog"
    root = flickr8k_tables(tmp_path / "flickr8k")
    rows = [("a.jpg", 0, "Ein Hund ."), ("a.jpg", 1, "Noch ein Hund .")]
    write_rows(root / "multi30k_task2_german_5caps.tsv", ("image", "n", "de"), *rows)
    german = open_split(DataConfig("flickr8k", root, language="de"), "train", 16)
    assert german.texts == ("Ein Hund .", "Noch ein Hund .")
    with pytest.raises(SaccadeError, match='data=flickr8k has no language "xx"'):
        open_split(DataConfig("flickr8k", root, language="xx"), "train", 16)
