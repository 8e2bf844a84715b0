"""Evaluators at work: what is kept of a captioner and of a dense captioner, and β by what a word is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from saccade.batch import Batch, CaptionState, PictureBatch, RegionBatch, StepOutput
from saccade.core.files import read_json
from saccade.data.records import CaptionedImages, PhrasedBoxes
from saccade.decoding import DecodingConfig
from saccade.features.splits import PhrasedPictures
from saccade.lab.claims.run import load_measured, save_measured
from saccade.language import Vocabulary, load_parser
from saccade.models import Captioner, DenseCap, DenseCapConfig, entries, entry
from saccade.tasks import find_task, task_names
from saccade.tasks.captioning.evaluate import MEANS, SENTINEL, CaptionScores, function_words, sentinel_shares, things
from saccade.tasks.captioning.task import CaptioningConfig
from saccade.tasks.dense_captioning.task import DenseCaptioningConfig, DensePrecision

TEXTS = ("the cube is near a ball", "green", "a ball on the left of the cube", "red cone", "a red cube", "a cone")
OWNERS = np.array([0, 0, 1, 2, 3, 3])


@dataclass(frozen=True, eq=False)
class Pictures:
    """A region source of one batch."""

    regions: RegionBatch

    @property
    def ids(self) -> Sequence[str]:
        return self.regions.ids

    @property
    def dim(self) -> int:
        return int(self.regions.features.shape[2])

    def __len__(self) -> int:
        return len(self.regions)

    def batch(self, indices: Sequence[int]) -> RegionBatch:
        return self.regions.select(list(indices))


@pytest.fixture
def data(toy_images: RegionBatch) -> CaptionedImages:
    return CaptionedImages("toy", "test", Pictures(toy_images), TEXTS, OWNERS)


def measured(model: Captioner, data: CaptionedImages, folder: Path) -> Any:
    task = CaptioningConfig(max_words=6, decoding=DecodingConfig(max_length=5))
    kept = CaptionScores().measure(model, data, task, folder, False)
    save_measured(folder, CaptionScores(), {"run": "toy"}, {"test": kept})
    found = load_measured(folder, CaptionScores())
    assert found is not None
    return found.scores["test"]


@pytest.mark.parametrize("system", ["adaptive", "updown"])
def test_what_pictures_add_is_the_figure(
    system: str, data: CaptionedImages, vocabulary: Vocabulary, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    small = {"region_dim": 12, "word_dim": 8, "dim": 8, "attention_dim": 4}
    model = entry(system).model(entry(system).model.Config(**small), vocabulary).eval()
    assert isinstance(model, Captioner)
    scores = measured(model, data, tmp_path)
    assert set(scores.by_picture) == {*MEANS, *(SENTINEL if system == "adaptive" else ())}
    for metric, parts in scores.by_picture.items():
        assert parts.shape == (4,)
        assert parts.sum() == pytest.approx(scores.figures[metric])
    assert {*CaptionScores.columns} <= scores.figures.keys()
    assert scores.counts == {"pictures": 4, "texts": 6}
    said = read_json(tmp_path / "captions-test.json")
    assert [one["image_id"] for one in said] == ["p0", "p1", "p2", "p3"]
    assert scores.figures["bleu1"] == pytest.approx(
        read_json(tmp_path / "measured.json")["splits"]["test"]["figures"]["bleu1"]
    )


@dataclass(frozen=True)
class Step(Batch):
    count: Tensor


class Clock(Captioner):
    """A captioner whose β is a tenth of the number of words before."""

    name, task = "clock", "captioning"

    def __init__(self, vocabulary: Vocabulary) -> None:
        super().__init__(None, vocabulary)
        self.weight = torch.nn.Parameter(torch.zeros(2, len(vocabulary)))

    def start(self, images: RegionBatch) -> CaptionState:
        zeros = torch.zeros(len(images))
        return CaptionState(Step(zeros), Step(zeros))

    def step(self, words: Tensor, state: CaptionState) -> StepOutput:
        assert isinstance(state.memory, Step)
        count = state.memory.count
        hidden = torch.zeros(len(words), 2)
        return StepOutput(hidden, replace(state, memory=Step(count + 1)), hidden, count / 10)

    def logits(self, hidden: Tensor) -> Tensor:
        return hidden @ self.weight


def test_beta_is_taken_where_the_word_is_said(data: CaptionedImages, vocabulary: Vocabulary) -> None:
    """The cube is near a ball: function words 0, 2 and 4, things 1 and 5; the places are those of the words."""
    shares = sentinel_shares(Clock(vocabulary), data, longest=8, batch_size=3)
    assert shares is not None
    function, nouns = shares
    assert function[0] == pytest.approx((0.0 + 0.2 + 0.4) / 3)
    assert nouns[0] == pytest.approx((0.1 + 0.5) / 2)
    assert np.isnan(function[2])  # "red cone" has none
    assert nouns[3] == pytest.approx((0.2 + 0.1) / 2)  # both captions of the picture
    cut = sentinel_shares(Clock(vocabulary), data, longest=3)
    assert cut is not None
    assert cut[1, 0] == pytest.approx(0.1)  # "ball" is beyond what is read


def test_where_things_stand_is_seen_and_no_thing() -> None:
    (parse,) = load_parser("rules").parse(["a dog and the cat of a man are on the left"])
    assert [parse.tokens[place] for place in function_words(parse)] == ["a", "and", "the", "of", "a", "are", "the"]
    assert [parse.tokens[place] for place in things(parse)] == ["dog", "cat", "man"]


TINY = DenseCapConfig(
    backbone="world", size=32, stride=4, frozen=6, map_dim=8, scales=(0.4,), ratios=(1.0,), rpn_dim=8,
    roi_size=2, dim=8, word_dim=8, hidden_dim=8, candidates=20, proposals=5,
)  # fmt: skip


class Grey:
    """Pictures of nothing."""

    ids = ("a", "b", "c")

    def __len__(self) -> int:
        return 3

    def batch(self, indices: Sequence[int]) -> PictureBatch:
        return PictureBatch(torch.full((len(indices), 32, 32, 3), 90, dtype=torch.uint8), ("a",) * len(indices))


def test_dense_captions_have_figures_and_no_parts(vocabulary: Vocabulary, tmp_path: Path) -> None:
    boxes = PhrasedBoxes(np.array([[0.2, 0.2, 0.8, 0.8]], np.float32), (("a cube", "a red cube"),))
    data = PhrasedPictures("toy", "test", Grey(), (boxes,) * 3)
    torch.manual_seed(0)
    model = DenseCap(TINY, vocabulary).eval()
    task = DenseCaptioningConfig(eval_pictures=2)
    scores = DensePrecision().scores(DensePrecision().measure(model, data, task, tmp_path, False))
    assert scores.figures.keys() == {"map", "detection_map", "regions"}
    assert not scores.by_picture
    assert scores.counts == {"pictures": 2, "texts": 4}


def test_every_task_that_can_be_trained_can_be_claimed_about() -> None:
    assert {one.task for one in entries()} <= {*task_names()}
    for name in task_names():
        evaluator = find_task(name).evaluator
        assert {evaluator.metric, *evaluator.columns} <= evaluator.metrics.keys()
        assert all(metric in evaluator.shown(metric) for metric in evaluator.metrics)
