"""Dense captioning as a task: which phrase is learned, how pictures vary, what the evaluation says, and the trainer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

from saccade.batch import PictureBatch
from saccade.features.splits import PhrasedBoxes, PhrasedPictures
from saccade.language import Vocabulary
from saccade.models import DenseCap, DenseCapConfig, load_model
from saccade.tasks import find_task
from saccade.tasks.dense_captioning.task import (
    DenseCaptioningConfig,
    DenseCaptioningTask,
    DensePrecision,
    describe,
    drawn_phrases,
    vary,
)
from saccade.training import Trainer, TrainerConfig
from saccade.vision.augment import AugmentConfig

TINY = DenseCapConfig(
    backbone="world", size=32, stride=4, frozen=6, map_dim=16, scales=(0.38,), ratios=(1.0,), rpn_dim=8,
    roi_size=3, dim=32, word_dim=16, hidden_dim=16, dropout=0.0, drawn=16, candidates=40, proposals=12,
)  # fmt: skip
CONFIG = DenseCaptioningConfig(min_count=1, eval_batch=3)


class Squares:
    """Pictures with a red square on the left or a blue one on the right."""

    ids = tuple(f"picture {i}" for i in range(4))

    def __len__(self) -> int:
        return 4

    def batch(self, indices: Sequence[int]) -> PictureBatch:
        pixels = torch.full((len(indices), 32, 32, 3), 90, dtype=torch.uint8)
        for n, i in enumerate(indices):
            x = 4 if i % 2 else 18
            pixels[n, 10:22, x : x + 12] = torch.tensor([200, 0, 0] if i % 2 else [0, 0, 200], dtype=torch.uint8)
        return PictureBatch(pixels, tuple(self.ids[i] for i in indices))


@pytest.fixture
def data() -> PhrasedPictures:
    regions = [
        PhrasedBoxes(np.array([[x / 32, 10 / 32, (x + 12) / 32, 22 / 32]], np.float32), (phrases,))
        for x, phrases in ((18, ("a blue cube", "blue")), (4, ("a red cube",))) * 2
    ]
    return PhrasedPictures("squares", "train", Squares(), tuple(regions))


@pytest.fixture
def model(vocabulary: Vocabulary) -> DenseCap:
    torch.manual_seed(0)
    return DenseCap(TINY, vocabulary)


def test_each_phrase_of_a_box_gets_its_turn(data: PhrasedPictures, model: DenseCap) -> None:
    batch = DenseCaptioningTask(data, data, model.read, CONFIG).batch([0, 1])
    torch.manual_seed(0)
    seen = {tuple(drawn_phrases(batch)[0, 0].tolist()) for _ in range(30)}
    assert seen == {(1, 4, 6, 8, 2), (1, 6, 2, 0, 0)}


def test_boxes_move_with_what_they_hold(data: PhrasedPictures, model: DenseCap) -> None:
    """However a picture was cut and mirrored, the square's colour fills its box."""
    batch = DenseCaptioningTask(data, data, model.read, CONFIG).batch([0, 1] * 8)
    torch.manual_seed(3)
    varied = vary(batch, 64, AugmentConfig(colour=0.0))
    assert varied.pictures.pixels.shape == (16, 64, 64, 3)
    left = 0
    for n in range(16):
        if not varied.real[n, 0]:
            continue
        x1, y1, x2, y2 = (varied.boxes[n, 0] * 64).round().long().tolist()
        left += x2 <= 34
        inside = varied.pictures.pixels[n, y1 + 3 : y2 - 3, x1 + 3 : x2 - 3].float()
        assert (inside - inside.new_tensor([200, 0, 0] if n % 2 else [0, 0, 200])).abs().max() < 30
    assert 0 < left < 16  # some were mirrored, some not


def test_the_evaluation_says_how_good_boxes_and_phrases_are(
    data: PhrasedPictures, model: DenseCap, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = DensePrecision().evaluate(model, data, CONFIG)
    assert list(figures) == ["map", "detection_map", "regions"]
    assert 0 <= figures["map"] <= figures["detection_map"] <= 100
    assert model.training  # as before
    truth = iter(data.regions)

    def oracle(model: DenseCap, pictures: PictureBatch, *_: object) -> list[list[object]]:
        from saccade.tasks.dense_captioning.task import DensePhrase

        return [
            [DensePhrase(tuple(r.boxes[0].tolist()), 1.0, r.phrases[0][0])] for r in (next(truth) for _ in pictures.ids)
        ]

    monkeypatch.setattr("saccade.tasks.dense_captioning.task.describe", oracle)
    assert DensePrecision().evaluate(model, data, CONFIG) == pytest.approx(
        {"map": 100, "detection_map": 100, "regions": 1}
    )


def test_regions_come_with_phrases_surest_first(data: PhrasedPictures, model: DenseCap) -> None:
    model.eval()
    told = describe(model, data.pixels([0, 1, 2]), most=4)
    assert len(told) == 3
    for regions in told:
        scores = [region.score for region in regions]
        assert 1 <= len(regions) <= 4
        assert scores == sorted(scores, reverse=True)
        assert all(word in model.vocabulary for region in regions for word in region.phrase.split())


def test_the_trainer_takes_it_through_a_run(data: PhrasedPictures, model: DenseCap, tmp_path: Path) -> None:
    """Within fifty small steps it finds the squares and speaks of them as it should; the best model is kept."""
    model.begin()  # with extractors that can tell colours
    before = DensePrecision().evaluate(model, data, CONFIG)
    task = find_task(DenseCap.task).task(model, data, data, replace(CONFIG, vary=False), AugmentConfig())
    trainer = TrainerConfig(
        steps=50, batch_size=4, learning_rate=1e-2, schedule="cosine", evaluate_every=10, accelerator="cpu"
    )
    result = Trainer(trainer, tmp_path, Console(file=StringIO())).fit(model, task)
    assert result.best["map"] > before["map"] + 10
    found = describe(load_model(tmp_path, DenseCap), data.pixels([0, 1]), most=1)
    assert {regions[0].phrase for regions in found} <= {"a red cube", "a blue cube", "blue"}
