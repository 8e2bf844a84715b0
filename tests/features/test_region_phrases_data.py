"""Boxes with phrases: from the world, from Entities, and as padded batches."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from saccade.batch import PictureBatch
from saccade.core.errors import SaccadeError
from saccade.data import DataConfig
from saccade.features.splits import PhrasedBoxes, open_region_phrases, phrase_batch
from saccade.language import Vocabulary

WORLD = DataConfig(name="world", pictures=20)


def test_the_world_gives_every_thing_that_can_be_seen_its_phrases() -> None:
    data = open_region_phrases(WORLD, "train")
    assert len(data.images) == len(data.regions) == 16
    assert data.pixels([3, 0]).pixels.shape == (2, 128, 128, 3)
    for regions in data.regions:
        assert all(regions.phrases)
        assert (regions.boxes[:, 2:] > regions.boxes[:, :2]).all()
    assert len(data.texts) == sum(len(phrases) for regions in data.regions for phrases in regions.phrases)


def test_a_limit_leaves_the_first_pictures() -> None:
    data = open_region_phrases(DataConfig(name="world", pictures=20, limit=3), "train")
    assert len(data.images) == len(data.regions) == 3
    with pytest.raises(SaccadeError, match="leaves nothing"):
        open_region_phrases(DataConfig(name="world", pictures=20, limit=0), "train")


@pytest.fixture
def entities(tmp_path: Path) -> Path:
    (tmp_path / "images").mkdir()
    Image.new("RGB", (40, 30), "navy").save(tmp_path / "images" / "a.jpg")
    phrases = [
        {"first_word": 0, "n_words": 2, "phrase": "A dog", "chain": "1", "types": ["animals"]},
        {"first_word": 3, "n_words": 2, "phrase": "two balls", "chain": "2", "types": ["other"]},
        {"first_word": 6, "n_words": 1, "phrase": "grass", "chain": "3", "types": ["scene"]},
    ]
    again = [{"first_word": 0, "n_words": 3, "phrase": "a brown puppy", "chain": "1", "types": ["animals"]}]
    row = {
        "image": "a.jpg", "width": 40, "height": 30, "split": "train", "scene": [], "nobox": ["3"],
        "boxes": {"1": [[1, 1, 20, 15]], "2": [[21, 16, 40, 30], [1, 16, 10, 30]]},
        "sentences": [{"text": "A dog with two balls on grass", "phrases": phrases},
                      {"text": "a brown puppy", "phrases": again}],
    }  # fmt: skip
    with gzip.open(tmp_path / "entities.jsonl.gz", "wt", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
    return tmp_path


def test_entities_give_each_box_of_a_chain_all_its_phrases(entities: Path) -> None:
    data = open_region_phrases(DataConfig(name="flickr8k", root=entities), "train")
    (regions,) = data.regions
    np.testing.assert_allclose(regions.boxes, [[0, 0, 0.5, 0.5], [0.5, 0.5, 1, 1], [0, 0.5, 0.25, 1]])
    assert regions.phrases == (("a dog", "a brown puppy"), ("two balls",), ("two balls",))
    assert data.pixels([0]).pixels.shape == (1, 40, 40, 3)


def test_data_without_boxes_and_a_missing_root_get_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(SaccadeError, match="data=precomp has no boxes with phrases"):
        open_region_phrases(DataConfig(name="precomp", root=tmp_path), "train")
    with pytest.raises(SaccadeError, match="give root=FOLDER"):
        open_region_phrases(DataConfig(name="flickr8k"), "train")
    with pytest.raises(SaccadeError, match='no split "tain"'):
        open_region_phrases(WORLD, "tain")


def test_a_batch_pads_boxes_phrases_and_words_and_cuts_long_ones(vocabulary: Vocabulary) -> None:
    one = PhrasedBoxes(
        np.array([[0, 0, 0.5, 0.5], [0.5, 0.5, 1, 1]], np.float32), (("a red cube", "cube"), ("a ball",))
    )
    none = PhrasedBoxes(np.zeros((0, 4), np.float32), ())
    pictures = PictureBatch(torch.zeros(2, 8, 8, 3, dtype=torch.uint8))
    batch = phrase_batch(pictures, [one, none], vocabulary.batch, longest=2)
    assert batch.phrases.shape == (2, 2, 2, 4)
    assert batch.phrases[0, 0].tolist() == [[1, 4, 5, 2], [1, 8, 2, 0]]
    assert batch.phrases[0, 1].tolist() == [[1, 4, 9, 2], [0, 0, 0, 0]]
    assert batch.counts.tolist() == [[2, 1], [0, 0]]
    assert batch.real.tolist() == [[True, True], [False, False]]
    assert phrase_batch(pictures, [none, none], vocabulary.batch, 5).real.sum() == 0


def test_a_box_without_a_phrase_is_refused() -> None:
    with pytest.raises(SaccadeError, match="need a phrase each"):
        PhrasedBoxes(np.zeros((1, 4), np.float32), ())
