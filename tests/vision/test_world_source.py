"""The world as a data set: seen once, kept, resumed after a kill, and read back as captioned pictures."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from saccade.core.errors import SaccadeError
from saccade.data.datasets.world import extract_split
from saccade.data.registry import DataConfig, open_split
from saccade.data.store.arrow import FeatureStore
from saccade.vision import load_extractor
from saccade.vision.detectors.world import WorldExtractor, WorldNetwork
from saccade.world import WorldConfig


def test_a_split_is_seen_once_and_kept(tiny_network: WorldNetwork, rectangles: Any, tmp_path: Path) -> None:
    extractor = WorldExtractor(tiny_network)
    store = extract_split(rectangles, extractor, tmp_path / "train")
    assert list(store.ids) == rectangles.ids
    seen, kept = extractor.extract(list(rectangles.pixels)), store.batch(range(len(rectangles)))
    assert torch.equal(seen.mask, kept.mask)
    torch.testing.assert_close(kept.features, seen.features, atol=4e-3, rtol=1e-3)  # kept in float16
    extractor.extract = None  # type: ignore[assignment,method-assign]  # a second opening must not extract again
    assert len(extract_split(rectangles, extractor, tmp_path / "train")) == len(rectangles)


def test_an_interrupted_seeing_goes_on_where_it_was(
    tiny_network: WorldNetwork, rectangles: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    extractor = WorldExtractor(tiny_network)
    extract, seen = extractor.extract, 0

    def fail_later(images: Any, **options: Any) -> Any:
        nonlocal seen
        if seen:
            raise KeyboardInterrupt
        seen += len(images)
        return extract(images, **options)

    monkeypatch.setattr(extractor, "extract", fail_later)
    with pytest.raises(KeyboardInterrupt):
        extract_split(rectangles, extractor, tmp_path / "train")
    assert len(FeatureStore.open(tmp_path / "train")) == seen > 0
    monkeypatch.setattr(extractor, "extract", extract)
    resumed = extract_split(rectangles, extractor, tmp_path / "train")
    straight = extract_split(rectangles, extractor, tmp_path / "again")
    assert list(resumed.ids) == list(straight.ids)
    both = [store.batch(range(len(rectangles))) for store in (resumed, straight)]
    torch.testing.assert_close(both[0].features, both[1].features, atol=4e-3, rtol=1e-3)


def test_the_world_opens_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path))
    monkeypatch.setattr("saccade.data.datasets.world.WorldConfig", partial(WorldConfig, hard_groups=1, novel=2))
    data = open_split(DataConfig("world", pictures=20, seed=3), "train")
    assert (data.name, data.split, data.extractor) == ("world", "train", "world")
    assert len(data.images) == 16
    assert data.images.dim == load_extractor().dim
    assert len(data.texts) == 5 * 16
    assert np.array_equal(data.image_of_text, np.repeat(np.arange(16), 5))
    boxes = data.images.batch([0]).boxes[0]
    assert [0, 0, 1, 1] in boxes.tolist()
    assert open_split(DataConfig("world", pictures=20, seed=3), "train").texts == data.texts
    assert any((tmp_path / "features").iterdir())


def test_unknown_splits_and_empty_worlds_are_named() -> None:
    with pytest.raises(SaccadeError, match=r'the world has no split "tset"; did you mean "test"\?'):
        open_split(DataConfig("world"), "tset")
    with pytest.raises(SaccadeError, match="a world of 0 pictures is empty"):
        open_split(DataConfig("world", pictures=0), "train")
