"""The world as a data set: seen once, kept, resumed after a kill, and read back as captioned pictures."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from company_extractor import CompanyExtractor

from saccade.core.errors import SaccadeError
from saccade.data import DataConfig, FeatureStore
from saccade.data.records import CaptionedDrawings
from saccade.features import open_split, splits
from saccade.features.splits import extract_split
from saccade.vision import load_extractor
from saccade.world import WorldConfig

COUNT = 100  # two batches


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "features"


@pytest.fixture
def extractor(monkeypatch: pytest.MonkeyPatch) -> CompanyExtractor:
    found = CompanyExtractor()
    monkeypatch.setattr(splits, "load_extractor", lambda name: found)
    return found


@pytest.fixture
def drawings() -> CaptionedDrawings:
    pixels = np.random.default_rng(0).integers(0, 255, (COUNT, 16, 16, 3), np.uint8)
    ids = tuple(f"picture-{i}" for i in range(COUNT))
    pictures = tuple(partial(pixels.__getitem__, i) for i in range(COUNT))
    return CaptionedDrawings("toy", "train", ids, pictures, ("a",), np.array([7]), "digest of the pictures")


def test_a_split_is_seen_once_and_kept(extractor: CompanyExtractor, drawings: CaptionedDrawings) -> None:
    data = extract_split(drawings, "world")
    assert (tuple(data.images.ids), data.texts, data.extractor) == (drawings.ids, ("a",), "company")
    first = [picture() for picture in drawings.pictures[: splits.BATCH_SIZE]]
    seen, kept = extractor.extract(first), data.regions.batch(range(splits.BATCH_SIZE))
    assert torch.equal(seen.mask, kept.mask)
    torch.testing.assert_close(kept.features, seen.features, atol=4e-3, rtol=1e-3)  # kept in float16
    extractor.extract = None  # type: ignore[assignment,method-assign]  # a second opening must not look again
    assert len(extract_split(drawings, "world").images) == COUNT


def test_an_interrupted_seeing_goes_on_where_it_was(
    extractor: CompanyExtractor, drawings: CaptionedDrawings, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    straight = extract_split(drawings, "world").regions.batch(range(COUNT))
    extractor.digest = "another"
    extract, seen = extractor.extract, 0

    def fail_later(images: Any, **options: Any) -> Any:
        nonlocal seen
        if seen:
            raise KeyboardInterrupt
        seen += len(images)
        return extract(images, **options)

    monkeypatch.setattr(extractor, "extract", fail_later)
    with pytest.raises(KeyboardInterrupt):
        extract_split(drawings, "world")
    assert sorted(len(FeatureStore.open(folder)) for folder in cache.glob("*/train")) == [seen, COUNT]
    monkeypatch.setattr(extractor, "extract", extract)
    resumed = extract_split(drawings, "world").regions.batch(range(COUNT))
    assert resumed.ids == straight.ids
    torch.testing.assert_close(resumed.features, straight.features, atol=4e-3, rtol=1e-3)


def test_the_world_opens_by_name(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("saccade.data.datasets.made.world.WorldConfig", partial(WorldConfig, hard_groups=1, novel=2))
    data = open_split(DataConfig("world", pictures=20, seed=3), "train")
    assert (data.name, data.split, data.extractor) == ("world", "train", "world")
    assert len(data.images) == 16
    assert data.regions.dim == load_extractor().dim
    assert len(data.texts) == 5 * 16
    assert np.array_equal(data.image_of_text, np.repeat(np.arange(16), 5))
    boxes = data.regions.batch([0]).boxes[0]
    assert [0, 0, 1, 1] in boxes.tolist()
    assert open_split(DataConfig("world", pictures=20, seed=3), "train").texts == data.texts
    assert any(cache.iterdir())


def test_unknown_splits_and_empty_worlds_are_named() -> None:
    with pytest.raises(SaccadeError, match=r'the world has no split "tset"; did you mean "test"\?'):
        open_split(DataConfig("world"), "tset")
    with pytest.raises(SaccadeError, match="a world of 0 pictures is empty"):
        open_split(DataConfig("world", pictures=0), "train")
