"""Grounding: spans of phrases, which regions are right, what is measured, and that a model learns it."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from saccade.batch import phrase_words
from saccade.core.errors import SaccadeError
from saccade.data import DataConfig, open_records
from saccade.data.records import GroundedPhrase, Groundings
from saccade.metrics.grounding import box_hits, grounding_report
from saccade.models import Hierarchical
from saccade.tasks import find_task
from saccade.tasks.grounding.evaluate import (
    GroundingAccuracy,
    ground_all,
    right_regions,
    token_span,
    true_boxes,
)
from saccade.tasks.grounding.predict import PictureGrounder
from saccade.tasks.grounding.task import GroundingConfig, GroundingTask, prepare_sentences
from saccade.tasks.prepare import build_model
from saccade.vision.augment import AugmentConfig
from toy_scenes import BOXES, SMALL, grounded


def test_the_best_box_counts_and_one_of_the_best_few() -> None:
    assert box_hits(np.array([True, False])) == {"accuracy": 1, "recall_5": 1, "recall_10": 1}
    sixth = np.arange(12) == 5
    assert box_hits(sixth) == {"accuracy": 0, "recall_5": 0, "recall_10": 1}
    assert box_hits(np.zeros(0, dtype=bool)) == {"accuracy": 0, "recall_5": 0, "recall_10": 0}
    hits = {"accuracy": np.array([1.0, 0, 0, 1]), "pointing": np.array([1.0, 1, 0, 1])}
    assert grounding_report(hits, ("people", "people", "people", "animals")) == {
        "accuracy": 50, "pointing": 75,
        "accuracy_people": pytest.approx(100 / 3), "pointing_people": pytest.approx(200 / 3),
        "accuracy_animals": 100, "pointing_animals": 100,
    }  # fmt: skip
    assert grounding_report(hits) == {"accuracy": 50, "pointing": 75}


def test_phrases_are_found_among_tokens_that_blanks_do_not_divide() -> None:
    text = "Tom's dog , wet , and a T-shirt"
    assert token_span(text, GroundedPhrase(0, 2, BOXES)) == (0, 3)  # tom 's dog
    assert token_span(text, GroundedPhrase(3, 4, BOXES)) == (4, 5)
    spans = [[(0, 2), (1, 4)], [(2, 3)]]
    assert phrase_words(spans, 4).tolist() == [[[1, 1, 0, 0], [0, 1, 1, 1]], [[0, 0, 1, 0], [0, 0, 0, 0]]]


def test_a_region_is_right_if_it_overlaps_a_true_box_by_half() -> None:
    regions = torch.tensor([[[0, 0, 1.0, 1], [0, 0, 0.5, 1], [0, 0, 0.49, 1]]])
    boxes = torch.tensor([[[[0, 0, 1.0, 1], [0, 0, 0, 0]], [[0, 0, 0.25, 1], [0.6, 0, 0.7, 1]]]])
    real = torch.tensor([[[True, False], [True, True]]])
    assert right_regions(regions, boxes, real).tolist() == [[[True, True, False], [False, True, True]]]
    halves = torch.tensor([[[0, 0, 0.5, 0.5], [0.5, 0, 1.0, 0.5]]])
    assert right_regions(halves, boxes, real, cells=True).tolist() == [[[True, True], [True, False]]]
    several = GroundedPhrase(0, 1, np.array([[0, 0, 0.25, 1], [0.5, 0.5, 0.75, 1]], dtype=np.float32))
    assert true_boxes(several, "any").tolist() == [[0, 0, 0.25, 1], [0.5, 0.5, 0.75, 1]]
    assert true_boxes(several, "merged").tolist() == [[0, 0, 0.75, 1]]


def test_a_grounder_learns_which_region_a_phrase_means() -> None:
    config, train, dev = GroundingConfig(), grounded(60, 1), grounded(30, 2)
    torch.manual_seed(0)
    model = build_model(Hierarchical, replace(SMALL, parts=("grounding",)), prepare_sentences(train, config))
    task = GroundingTask(model, train, dev, config, AugmentConfig())
    before = task.evaluate(model)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in range(60):
        loss, _ = task.loss(model, task.batch(list(range(step % 4, len(task), 4))), step)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    figures = task.evaluate(model.eval())
    assert figures["accuracy"] > max(90, before["accuracy"])
    assert figures["upper_bound"] == figures["recall_5"] == 100
    kept = GroundingAccuracy().measure(model, dev, config, Path(), False)
    assert kept["part/accuracy"].sum() == pytest.approx(figures["accuracy"])
    found = PictureGrounder(model).ground(dev.images.batch([0]), "a red cube here")  # type: ignore[arg-type]
    assert [phrase.text for phrase in found] == ["a red cube"]


def test_padding_is_no_region_to_choose() -> None:
    train = grounded(4, 1)
    model = build_model(
        Hierarchical, replace(SMALL, parts=("grounding",)), prepare_sentences(train, GroundingConfig())
    ).eval()
    one = ground_all(model, train, batch_size=1)
    source = train.images.batch

    def padded(indices: list[int]) -> object:
        return source(indices).pad(5)

    train.images.batch = padded  # type: ignore[assignment,method-assign]
    more = ground_all(model, train)
    assert all((more.hits["model"][name] == each).all() for name, each in one.hits["model"].items())


def test_phrases_without_words_or_boxes_are_refused() -> None:
    pictures = grounded(1, 1).pictures
    for phrase in (GroundedPhrase(2, 2, BOXES), GroundedPhrase(0, 5, BOXES), GroundedPhrase(0, 1, BOXES[:0])):
        with pytest.raises(SaccadeError, match="no words or no box"):
            Groundings(pictures, ((phrase,),))


def test_the_worlds_phrases_name_their_things() -> None:
    split = find_task("grounding").open(DataConfig(pictures=20), "dev")
    assert len(split.images) == 2
    said = [(text, phrase) for text, phrases in zip(split.texts, split.phrases, strict=True) for phrase in phrases]
    assert len(said) > 8
    for text, phrase in said:
        words = text.split()[phrase.first : phrase.end]
        assert "," not in words
        assert ((phrase.boxes[:, 2:] - phrase.boxes[:, :2]) > 0.02).all()


def test_entities_come_with_the_boxes_of_their_phrases(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    Image.new("RGB", (20, 10)).save(tmp_path / "images" / "a.jpg")
    phrases = [
        {"first_word": 0, "n_words": 2, "chain": "1", "types": ["animals"]},
        {"first_word": 3, "n_words": 2, "chain": "0", "types": ["notvisual"]},
    ]
    line = {"image": "a.jpg", "width": 20, "height": 10, "split": "train", "boxes": {"1": [[1, 1, 10, 10]]},
            "scene": [], "nobox": [], "sentences": [{"text": "A dog in the wind", "phrases": phrases}]}  # fmt: skip
    with gzip.open(tmp_path / "entities.jsonl.gz", "wt") as file:
        file.write(json.dumps(line) + "\n")
    found = open_records(DataConfig("flickr8k", tmp_path), "train", "grounding")
    assert found.texts == ("A dog in the wind",)
    assert [(p.first, p.end, p.boxes.tolist()) for p in found.phrases[0]] == [(0, 2, [[0, 0, 0.5, 1]])]
    with pytest.raises(SaccadeError, match="no grounding"):
        open_records(DataConfig("coco", tmp_path), "train", "grounding")
