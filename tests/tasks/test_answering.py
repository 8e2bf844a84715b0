"""Answering: what is prepared, learned and measured; a model trained on toy questions answers them."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import torch

from saccade.batch import RegionBatch
from saccade.core.errors import SaccadeError
from saccade.data.records import CaptionedImages, Questions
from saccade.models import UpDownVqa, UpDownVqaConfig
from saccade.tasks import find_task
from saccade.tasks.answering.evaluate import AnswerAccuracy, answer_all, majority, shown_pictures
from saccade.tasks.answering.task import (
    AnsweringConfig,
    AnsweringTask,
    PictureAnswerer,
    build_answerer,
    prepare_questions,
)
from saccade.tasks.base import sampler_of
from saccade.training.seeds import BatchSampler
from saccade.vision.augment import AugmentConfig

COLOURS, KINDS = ("red", "green", "blue"), ("cube", "ball")


class Things:
    """Pictures of three regions whose features say colour and kind outright."""

    def __init__(self, count: int, seed: int) -> None:
        draw = np.random.default_rng(seed)
        self.colour, self.kind = draw.integers(3, size=count), draw.integers(2, size=count)
        self.ids, self.dim = tuple(map(str, range(count))), 5

    def __len__(self) -> int:
        return len(self.ids)

    def batch(self, indices: list[int]) -> RegionBatch:
        features = torch.zeros(len(indices), 3, 5)
        for row, index in enumerate(indices):
            features[row, 0, self.colour[index]] = 1
            features[row, 0, 3 + self.kind[index]] = 1
        boxes = torch.tensor([[0, 0, 0.3, 1], [0.3, 0, 0.6, 1], [0.6, 0, 1, 1]])
        return RegionBatch(features, torch.ones(len(indices), 3, dtype=torch.bool), boxes.expand(len(indices), 3, 4))


def asked(count: int, seed: int) -> Questions[CaptionedImages]:
    things = Things(count, seed)
    texts = tuple(text for _ in range(count) for text in ("what colour is it?", "is it a cube?"))
    answers = tuple(
        (answer,) for c, k in zip(things.colour, things.kind, strict=True) for answer in (COLOURS[c], ("yes", "no")[k])
    )
    pictures = CaptionedImages("toys", f"split{seed}", things, texts, np.repeat(np.arange(count), 2), "toys")  # type: ignore[arg-type]
    kinds = ("colour", "kind") * count
    return Questions(pictures, answers, kinds, tuple(str(n) for n in range(2 * count)))


def trained(config: AnsweringConfig, steps: int = 120) -> tuple[UpDownVqa, Questions[CaptionedImages]]:
    train, dev = asked(60, 1), asked(30, 2)
    torch.manual_seed(0)
    model = build_answerer(UpDownVqa, UpDownVqaConfig(dim=16, word_dim=8), prepare_questions(train, config))
    assert isinstance(model, UpDownVqa)
    task = AnsweringTask(model, train, dev, config, AugmentConfig())
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    for step in range(steps):
        loss, _ = task.loss(model, task.batch(list(range(step % 4, len(task), 4))), step)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return model.eval(), dev


def test_what_is_prepared_are_words_answers_and_widths() -> None:
    prepared = prepare_questions(asked(40, 1), AnsweringConfig())
    assert set(prepared.labels) == {"red", "green", "blue", "yes", "no"}
    assert prepared.widths == {"region_dim": 5}
    assert prepared.vocabulary is not None
    assert {"colour", "cube", "green"} <= set(prepared.vocabulary.words)
    assert prepare_questions(asked(40, 1), AnsweringConfig(max_answers=2)).labels == prepared.labels[:2]
    with pytest.raises(SaccadeError, match="answer_min_count"):
        prepare_questions(asked(4, 1), AnsweringConfig(answer_min_count=50))


def test_a_model_learns_to_look_and_one_that_sees_a_half_does_not() -> None:
    config = AnsweringConfig()
    model, dev = trained(config)
    figures = AnswerAccuracy().evaluate(model, dev, config)
    assert min(figures[name] for name in ("accuracy", "accuracy_colour", "accuracy_kind", "mean_kind")) > 95
    for shown in ("question", "picture"):
        half = replace(config, shown=shown)
        figures = AnswerAccuracy().evaluate(trained(half)[0], dev, half)
        assert figures["accuracy"] < 80


def test_a_model_that_multiplies_can_learn_from_the_question_alone() -> None:
    """The floor is no floor if what stands for the picture silences the question."""
    torch.manual_seed(0)
    images = RegionBatch(torch.randn(4, 3, 8), torch.ones(4, 3, dtype=torch.bool), torch.zeros(4, 3, 4))
    hidden = shown_pictures(images, "question")
    assert hidden.features.shape == (4, 1, 8)
    assert len(hidden.features.unique()) == 1  # it tells nothing
    assert bool((hidden.features != 0).all())
    assert shown_pictures(images, "both") is images


def test_targets_are_soft_and_unknown_answers_have_none() -> None:
    train = asked(2, 1)
    ten = ("red",) * 7 + ("dark red",) * 2 + ("blue",)
    train = replace(train, answers=(ten, ("yes",), ("mauve",), ("no",)))
    model = build_answerer(
        UpDownVqa, UpDownVqaConfig(dim=4), replace(prepare_questions(train, AnsweringConfig()), labels=("red", "blue"))
    )
    batch = AnsweringTask(model, train, train, AnsweringConfig(), AugmentConfig()).batch([0, 2, 3])
    torch.testing.assert_close(batch.target, torch.tensor([[1.0, 0.3], [0, 0], [0, 0]]))
    assert batch.owner.tolist() == [0, 1, 1]
    assert len(batch.images) == 2


def test_kinds_that_are_learned_last_come_more_often_after_some_epochs() -> None:
    train = asked(3, 1)
    model = build_answerer(UpDownVqa, UpDownVqaConfig(dim=4), prepare_questions(train, AnsweringConfig()))

    def epochs(config: AnsweringConfig) -> list[list[int]]:
        sampler = sampler_of(AnsweringTask(model, train, train, config, AugmentConfig()), in_order)
        assert sampler.steps_per_epoch == 3
        return [sorted(i for step in range(n, n + 3) for i in sampler.indices(step)) for n in (0, 3, 6)]

    def in_order(count: int, size: int | None) -> BatchSampler:
        return BatchSampler(count, size or 2, seed=0)

    once, config = list(range(6)), AnsweringConfig(repeated_kinds=("kind",), repeats=3, repeat_after=1)
    assert epochs(AnsweringConfig()) == [once] * 3
    assert epochs(config) == [once, *epochs(replace(config, repeat_after=0))[:2]]
    assert sorted(chain(*epochs(config)[1:])) == [0, 1, 1, 1, 2, 3, 3, 3, 4, 5, 5, 5]
    with pytest.raises(SaccadeError, match='repeated_kinds has "kinds"; did you mean "kind"'):
        epochs(replace(config, repeated_kinds=("kinds",)))


def test_a_picture_counts_with_all_its_questions(tmp_path: Path) -> None:
    config = AnsweringConfig()
    model, dev = trained(config, steps=8)
    kept = AnswerAccuracy().measure(model, dev, config, tmp_path, False)
    assert kept["part/accuracy"].shape == (30,)
    assert kept["part/accuracy"].sum() == pytest.approx(float(kept["accuracy"]))


def test_the_most_frequent_answer_of_each_kind_is_the_floor() -> None:
    dev = asked(30, 2)
    said = majority(dev, ("red", "green", "blue", "yes", "no"))
    assert len(set(said[::2])) == len(set(said[1::2])) == 1
    assert set(said[1::2]) <= {"yes", "no"}
    assert set(majority(dev, ("yes",))) == {"", "yes"}


def test_a_predictor_answers_and_explains() -> None:
    model, dev = trained(AnsweringConfig())
    predictor = find_task("answering").predictor(model)
    assert isinstance(predictor, PictureAnswerer)
    things = dev.images
    answers = predictor.ask(things.batch([0]), "what colour is it?", top=2)
    assert answers[0].text == answer_all(model, dev)[0]
    assert len(predictor.ask(things.batch([0]), "is it a cube?", top=0)) == 5
    with pytest.raises(SaccadeError, match="knows none"):
        predictor.ask(things.batch([0]), "quo vadis")
    with pytest.raises(SaccadeError, match="give one"):
        predictor.explain(np.zeros((4, 4, 3), dtype=np.uint8))


def test_held_out_pictures_take_their_questions_along() -> None:
    part = asked(6, 1).select([4, 1])
    assert len(part.texts) == 4
    assert part.ids == ("2", "3", "8", "9")
    assert part.pictures.image_of_text.tolist() == [1, 1, 0, 0]
