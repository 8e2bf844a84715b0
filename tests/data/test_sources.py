"""Data sets are found by name, and a limit keeps pictures and sentences together."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from toy_pictures import make_pictures, write_store

from saccade.core.config import from_dict, to_dict
from saccade.core.errors import SaccadeError
from saccade.data import Caption, CaptionedImages, DataConfig, FeatureStore, reader, write_captions
from saccade.data.records import RegionSubset
from saccade.data.store.sources import ChainedRegions
from saccade.features import open_split


@pytest.fixture
def captioned(tmp_path: Path) -> Path:
    folder = write_store(tmp_path / "s", make_pictures(6))
    order = (5, 0, 3, 0, 5)
    captions = [Caption(f"picture-{i}", f"{n}: {i}", "test" if i == 3 else "train") for n, i in enumerate(order)]
    write_captions(folder / "captions.jsonl", captions)
    return folder


def test_a_store_split_has_the_pictures_its_captions_name(captioned: Path) -> None:
    data = open_split(DataConfig("store", captioned), "train")
    assert data.images.ids == ("picture-0", "picture-5")
    assert data.texts == ("0: 5", "1: 0", "3: 0", "4: 5")
    assert data.image_of_text.tolist() == [1, 0, 0, 1]
    assert data.images.batch([1]).ids == ("picture-5",)
    assert data.extractor == "test"


def test_captions_without_splits_serve_any_split(captioned: Path) -> None:
    write_captions(captioned / "captions.jsonl", [Caption("picture-1", "a")])
    assert open_split(DataConfig("store", captioned), "whatever").texts == ("a",)


def test_splits_of_a_store_add_up_and_dev_is_val(captioned: Path) -> None:
    names = ("train", "val2017", "restval")
    write_captions(captioned / "captions.jsonl", [Caption(f"picture-{n}", s, s) for n, s in enumerate(names)])
    assert open_split(DataConfig("store", captioned), "train+restval").texts == ("train", "restval")
    assert open_split(DataConfig("store", captioned), "dev").texts == ("val2017",)


def test_a_limit_keeps_the_first_pictures_and_their_sentences(captioned: Path) -> None:
    data = open_split(DataConfig("store", captioned, limit=1), "train")
    assert data.images.ids == ("picture-0",)
    assert data.texts == ("1: 0", "3: 0")
    assert len(open_split(DataConfig("store", captioned, limit=99), "train").images) == 2
    with pytest.raises(SaccadeError, match="limit of 0"):
        open_split(DataConfig("store", captioned, limit=0), "train")


def test_store_splits_that_cannot_be(captioned: Path) -> None:
    with pytest.raises(SaccadeError, match='no split "tran"; did you mean "train"'):
        open_split(DataConfig("store", captioned), "tran")
    write_captions(captioned / "captions.jsonl", [Caption("nobody", "a")])
    with pytest.raises(SaccadeError, match='no features of the picture "nobody"'):
        open_split(DataConfig("store", captioned), "train")
    (captioned / "captions.jsonl").unlink()
    with pytest.raises(SaccadeError, match=r"captions.jsonl is missing"):
        open_split(DataConfig("store", captioned), "train")


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(SaccadeError, match='there is no data set "precmop"; did you mean "precomp"'):
        open_split(DataConfig("precmop"), "train")


def test_a_new_source_is_one_function(tmp_path: Path) -> None:
    store = FeatureStore.open(write_store(tmp_path / "s", make_pictures(2)))

    @reader("mine")
    def open_mine(split: str, root: Path | None, seed: int) -> CaptionedImages:
        return CaptionedImages("mine", split, store, (f"seed {seed}",), np.array([1]))

    assert open_split(DataConfig("mine", seed=3), "dev").texts == ("seed 3",)

    @reader("mine")
    def open_mine_with_all(split: str, root: Path | None, **options: int) -> CaptionedImages:
        return CaptionedImages("mine", split, store, (str(sorted(options)),), np.array([1]))

    assert open_split(DataConfig("mine"), "dev").texts == ("['extractor', 'language', 'pictures', 'seed']",)


def test_the_configuration_travels_through_yaml_values() -> None:
    config = DataConfig("precomp", Path("data"), limit=10)
    assert from_dict(DataConfig, to_dict(config)) == config


def test_chained_sources_count_on(tmp_path: Path) -> None:
    pictures = make_pictures(7)
    first = FeatureStore.open(write_store(tmp_path / "a", pictures[:3]))
    second = FeatureStore.open(write_store(tmp_path / "b", pictures[3:]))
    chained = ChainedRegions([first, RegionSubset(second, [3, 0])])
    assert chained.ids == ("picture-0", "picture-1", "picture-2", "picture-6", "picture-3")
    assert [chained.get(i).id for i in range(5)] == list(chained.ids)
    assert chained.batch([4, 0]).ids == ("picture-3", "picture-0")
