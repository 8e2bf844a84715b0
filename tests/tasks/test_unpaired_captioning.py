"""Captioning without pairs: the order of the stages, whose turn it is, what each lesson reaches, and exact resume."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

from saccade.batch import RegionBatch
from saccade.core.errors import SaccadeError
from saccade.data.records import CaptionedImages
from saccade.language import Vocabulary
from saccade.models import Unsupervised, UnsupervisedConfig
from saccade.tasks.unpaired_captioning.task import UnpairedCaptioningConfig, UnpairedCaptioningTask
from saccade.training import Trainer, TrainerConfig

STAGES = {"autoencoder_steps": 2, "sentence_gan_steps": 2, "concept_steps": 2, "pseudo_steps": 2}
PLAYERS = {  # which parts each lesson reaches
    "autoencoder": {"critic", "embed", "bias", "cell"},
    "critic of noise": {"critic"},
    "captioner of noise": {"embed", "bias", "cell"},
    "concept": {"reader", "embed", "bias", "cell"},
    "pseudo": {"reader", "project", "embed", "bias", "cell"},
    "critic": {"critic"},
    "captioner": {"project", "embed", "bias", "cell"},
}
THINGS = ("cube", "ball", "cone")


class ThingPictures:
    """Two regions a picture: the thing that it shows, as one number in four, and noise."""

    dim = 4
    ids = tuple(f"p{i}" for i in range(24))

    def __len__(self) -> int:
        return len(self.ids)

    def batch(self, indices: Sequence[int]) -> RegionBatch:
        features = [torch.eye(4)[[i % 3, 3]] for i in indices]
        return RegionBatch.of(features, [torch.zeros(2, 4) for _ in indices], [self.ids[i] for i in indices])


def split() -> CaptionedImages:
    texts = [f"a {colour} {THINGS[i % 3]}" for i in range(24) for colour in ("red", "small")]
    return CaptionedImages("toy", "train", ThingPictures(), tuple(texts), np.repeat(np.arange(24), 2))


@pytest.fixture
def concepts(tmp_path: Path) -> str:
    lines = [f'{{"image": "p{i}", "concepts": {{"{THINGS[i % 3]}": 0.9}}}}' for i in range(24)]
    (tmp_path / "concepts.jsonl").write_text("\n".join(lines) + "\n")
    return str(tmp_path / "concepts.jsonl")


def parts(vocabulary: Vocabulary, settings: dict[str, Any], **own: Any) -> tuple[Unsupervised, UnpairedCaptioningTask]:
    torch.manual_seed(0)
    model = Unsupervised(UnsupervisedConfig(**{"region_dim": 4, "dim": 16, **own}), vocabulary)
    data = split()
    return model, UnpairedCaptioningTask(data, data, model.read, UnpairedCaptioningConfig(max_words=6, **settings))


def test_pictures_and_sentences_of_a_batch_are_strangers(vocabulary: Vocabulary, concepts: str) -> None:
    _, task = parts(vocabulary, {"concepts": concepts, "share": 0.5})
    assert len(task) == 24  # sentences; twelve pictures are shown twice
    batch = task.batch(range(24))
    assert len(batch.images) == len(batch.texts) == len(batch.concepts) == 24
    assert {f"p{i}" for i in range(12)} == set(batch.images.ids)
    assert task.texts.words == vocabulary.batch(split().texts[24:]).words
    thing = [vocabulary.words[word] for word in batch.concepts[:3, 0]]
    assert thing == list(THINGS)


def test_stages_come_in_order_and_reach_their_players(vocabulary: Vocabulary, concepts: str) -> None:
    model, task = parts(vocabulary, {"concepts": concepts, **STAGES})
    stages = [task.config.stage(step)[0] for step in range(10)]
    assert stages == [s for s in ("autoencoder", "sentence_gan", "concept", "pseudo", "game") for _ in range(2)]
    lessons = ["autoencoder"] * 2 + ["critic of noise", "captioner of noise"] + ["concept"] * 2 + ["pseudo"] * 2
    for step, lesson in enumerate([*lessons, "critic", "captioner"]):
        model.zero_grad()
        loss, figures = task.loss(model, task.batch(range(8)), step)
        loss.backward()  # type: ignore[no-untyped-call]
        reached = {name.split(".")[0] for name, weight in model.named_parameters() if weight.grad is not None}
        assert reached == PLAYERS[lesson], lesson
        assert all(np.isfinite(value.detach().item()) for value in figures.values())
    assert {"policy_loss", "reward", "said_words", "sentence_loss"} == set(figures)


def test_without_reconstruction_and_concepts_the_game_is_adversarial_alone(vocabulary: Vocabulary) -> None:
    off = {"concept_weight": 0.0, "image_weight": 0.0, "sentence_weight": 0.0}
    model, task = parts(vocabulary, {"concepts": "none"}, **off)
    batch = task.batch(range(8))
    assert set(task.loss(model, batch, 0)[1]) == {"critic_loss", "adversarial_loss"}
    assert set(task.loss(model, batch, 1)[1]) == {"policy_loss", "reward", "said_words"}


def test_concepts_lead_to_captions_without_a_pair(vocabulary: Vocabulary, concepts: str) -> None:
    """From concepts to sentences, from pictures to what their concepts say: then the right thing is named."""
    settings = {"concepts": concepts, "concept_steps": 80, "pseudo_steps": 40}
    model, task = parts(vocabulary, settings, dim=24, dropout=0.0, first_momentum=0.9)
    optimiser = torch.optim.Adam(model.parameter_groups(), lr=0.04)
    for step in range(120):
        loss, _ = task.loss(model, task.batch(range(24)), step)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    model.eval()
    figures = task.evaluate(model)
    assert figures["bleu1"] > 95


def test_a_resumed_game_ends_as_an_unbroken_one(vocabulary: Vocabulary, concepts: str, tmp_path: Path) -> None:
    def fit(folder: str, steps: int, resume: bool = False) -> dict[str, torch.Tensor]:
        model, task = parts(vocabulary, {"concepts": concepts, **STAGES})
        config = TrainerConfig(
            steps=steps, batch_size=8, accelerator="cpu", schedule="constant", evaluate_every=50, checkpoint_every=3
        )
        Trainer(config, tmp_path / folder, Console(file=StringIO())).fit(model, task, resume)
        return model.state_dict()

    whole = fit("whole", 13)
    fit("broken", 9)
    resumed = fit("broken", 13, resume=True)
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"share": 1.5}, "share must be between 0 and 1"),
        ({"pseudo_steps": -1}, "pseudo_steps must be zero or more"),
        ({"concepts": "none", "concept_steps": 5}, "concepts=none gives them none"),
        ({"max_words": 0}, "max_words must be at least 1"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SaccadeError, match=sentence):
        UnpairedCaptioningConfig(**settings)


def test_a_model_that_reads_no_concepts_cannot_learn_from_them(vocabulary: Vocabulary, concepts: str) -> None:
    model, task = parts(vocabulary, {"concepts": concepts, "concept_steps": 5}, concept_reader=False)
    with pytest.raises(SaccadeError, match="concept_reader=true"):
        task.loss(model, task.batch(range(4)), 0)
