"""Karpathy's split files, joined with the features of their pictures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from photo_samples import write_karpathy
from toy_pictures import make_pictures, write_store

from saccade.core.errors import SaccadeError
from saccade.data import DataConfig
from saccade.data.datasets.photos.karpathy import KarpathyImage, KarpathySentence, read_karpathy
from saccade.features import open_split


def images(count: int = 6, **extra: Any) -> list[KarpathyImage]:
    splits = ("train", "restval", "val", "test")
    return [
        KarpathyImage(
            filename=f"picture-{i}.jpg",
            split=splits[i % 4],
            sentences=tuple(
                KarpathySentence(f"A bear, no. {n}.", ("a", "bear", "no", str(n))) for n in range(1 + i % 2)
            ),
            imgid=i,
            **extra,
        )
        for i in range(count)
    ]


def folder_with(tmp_path: Path, entries: list[KarpathyImage], count: int = 6) -> Path:
    write_store(tmp_path / "features", make_pictures(count))
    write_karpathy(tmp_path / "dataset_toy.json", entries)
    return tmp_path


def test_writing_and_reading_keeps_everything(tmp_path: Path) -> None:
    write_karpathy(tmp_path / "d.json", images(filepath="val2014", cocoid=12))
    assert read_karpathy(tmp_path / "d.json") == tuple(images(filepath="val2014", cocoid=12))
    values = json.loads((tmp_path / "d.json").read_text())
    assert [s for i in values["images"] for s in i["sentids"]] == list(range(9))


def test_a_split_has_its_pictures_and_their_sentences(tmp_path: Path) -> None:
    data = open_split(DataConfig("karpathy", folder_with(tmp_path, images())), "train")
    assert data.images.ids == ("picture-0", "picture-4")
    assert data.texts == ("A bear, no. 0.",) * 2
    assert data.extractor == "test"


def test_splits_add_up_and_dev_means_val(tmp_path: Path) -> None:
    config = DataConfig("karpathy", folder_with(tmp_path, images()))
    assert open_split(config, "train+restval").images.ids == ("picture-0", "picture-1", "picture-4", "picture-5")
    assert open_split(config, "dev").images.ids == ("picture-2",)


def test_pictures_are_found_under_the_name_the_features_use(tmp_path: Path) -> None:
    store = [type(p)(str(i * 10), p.features, p.boxes) for i, p in enumerate(make_pictures(6))]
    write_store(tmp_path / "features", store)
    entries = [KarpathyImage(f"x{i}.jpg", "test", (KarpathySentence("a"),), imgid=i, cocoid=i * 10) for i in range(6)]
    write_karpathy(tmp_path / "dataset_coco.json", entries)
    data = open_split(DataConfig("karpathy", tmp_path), "test")
    assert data.images.ids == ("0", "10", "20", "30", "40", "50")  # by cocoid, though imgid 0 exists too


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    config = DataConfig("karpathy", tmp_path)
    with pytest.raises(SaccadeError, match="must hold one dataset"):
        open_split(config, "train")
    write_karpathy(tmp_path / "dataset_toy.json", images())
    with pytest.raises(SaccadeError, match=r"features/manifest.json is missing"):
        open_split(config, "train")
    write_store(tmp_path / "features", make_pictures(4))
    with pytest.raises(SaccadeError, match=r"1 of 2 pictures of .* are not among the features, for one picture-4.jpg"):
        open_split(config, "train")
    with pytest.raises(SaccadeError, match='no split "tset"; did you mean "test"'):
        open_split(config, "tset")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ([], 'the list "images" was expected'),
        ({"images": 3}, 'the list "images" was expected'),
        ({"images": [3]}, "images[0] is 3"),
        ({"images": [{"split": "train", "sentences": []}]}, 'images[0]: "filename" is None, text was expected'),
        ({"images": [{"filename": "a", "split": "train"}]}, '"sentences" is None, a list'),
        (
            {"images": [{"filename": "a", "split": "train", "sentences": [{}]}]},
            "images[0].sentences[0]: a mapping with",
        ),
        ({"images": [{"filename": "a", "split": "t", "sentences": [], "imgid": "x"}]}, '"imgid" is'),
        ({"images": [{"filename": "a", "split": "t", "sentences": [{"raw": "a", "tokens": "a"}]}]}, '"tokens" is not'),
    ],
)
def test_other_json_is_refused_by_field(tmp_path: Path, content: Any, sentence: str) -> None:
    path = tmp_path / "d.json"
    path.write_text(json.dumps(content))
    with pytest.raises(SaccadeError, match=r"d.json") as error:
        read_karpathy(path)
    assert sentence in str(error.value)
