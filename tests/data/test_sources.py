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
from saccade.data.store.sources import ChainedRegions, held_out_splits
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


def unsplit(folder: Path, count: int = 200) -> Path:
    """A store of pictures with two captions each, none of which names a split."""
    root = write_store(folder, make_pictures(count))
    write_captions(root / "captions.jsonl", [Caption(f"picture-{n % count}", f"{n}") for n in range(2 * count)])
    return root


def test_captions_without_splits_are_split_by_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = unsplit(tmp_path / "s")
    parts = {split: open_split(DataConfig("store", root), split) for split in ("train", "dev", "test")}
    ids = {split: set(data.images.ids) for split, data in parts.items()}
    assert len(set.union(*ids.values())) == sum(map(len, ids.values())) == 200
    assert all(10 <= len(ids[split]) <= 35 for split in ("dev", "test"))
    assert all(len(data.texts) == 2 * len(data.images) for data in parts.values())
    assert open_split(DataConfig("store", root), "val").images.ids == parts["dev"].images.ids
    assert len(open_split(DataConfig("store", root), "all").images) == 200
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1  # three splits were opened
    assert (
        f"captions.jsonl names no splits, so a hash of each picture's name does: {len(ids['train'])} train" in said[0]
    )
    with pytest.raises(SaccadeError, match='no split "tset"; did you mean "test"'):
        open_split(DataConfig("store", root), "tset")


def test_a_picture_keeps_the_split_made_for_it_when_others_come() -> None:
    few = held_out_splits([f"picture-{n}" for n in range(100)], "captions.jsonl")
    many = held_out_splits([f"picture-{n}" for n in range(400)], "captions.jsonl")
    assert {id: many[id] for id in few} == few


@pytest.mark.parametrize("count", range(10, 30))
def test_few_pictures_leave_one_for_each_split(count: int) -> None:
    for first in range(0, 1000, 100):
        made = held_out_splits([f"{n}.jpg" for n in range(first, first + count)], "captions.jsonl")
        assert set(made.values()) == {"train", "dev", "test"}


def test_splits_of_captions_that_cannot_be(tmp_path: Path) -> None:
    root = unsplit(tmp_path / "s", 9)
    with pytest.raises(SaccadeError, match=r"captions\.jsonl names no splits and has 9 pictures, too few"):
        open_split(DataConfig("store", root), "train")
    assert len(open_split(DataConfig("store", root), "all").images) == 9
    both = [Caption("picture-1", "a", "train"), Caption("picture-1", "b", "test")]
    write_captions(root / "captions.jsonl", both)
    with pytest.raises(SaccadeError, match='of the picture "picture-1" in train and test: what is learned from must'):
        open_split(DataConfig("store", root), "train")
    write_captions(root / "captions.jsonl", [both[0], Caption("picture-2", "b")])
    with pytest.raises(SaccadeError, match='some pictures but none of "picture-2"'):
        open_split(DataConfig("store", root), "train")


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
    write_captions(captioned / "captions.jsonl", [Caption("nobody", "a", "train")])
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

    assert open_split(DataConfig("mine"), "dev").texts == (
        "['extractor', 'language', 'pictures', 'redundancy', 'seed']",
    )


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
