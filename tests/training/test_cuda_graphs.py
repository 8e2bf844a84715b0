"""Captured steps: what is handed over to be captured, and that training with it is training without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from torch import Tensor, nn

from saccade.batch import Batch, PairBatch, RegionBatch, TextBatch
from saccade.data import CaptionedImages
from saccade.language import Vocabulary
from saccade.models import UpDown, UpDownConfig
from saccade.tasks.captioning.task import CaptioningConfig, CaptioningTask, RewardConfig, SpokenBatch
from saccade.training import Trainer, TrainerConfig, seed_everything
from saccade.training.cuda_graphs import tensors_of, with_tensors
from saccade.training.trainer import Loop

TEXTS = ("a cube", "a red ball and a cube", "a ball", "two red cubes", "a cone", "a red cone", "balls", "two cones") * 4


class Recorder:
    """Takes every step as it comes, and remembers what it was given."""

    def __init__(self, gradient: Any) -> None:
        self.gradient = gradient
        self.given: list[tuple[type[Batch], tuple[torch.Size, ...]]] = []

    def take(self, batch: Batch, step: int) -> tuple[Tensor, Any]:
        self.given.append((type(batch), tuple(tensor.shape for tensor in tensors_of(batch))))
        result: tuple[Tensor, Any] = self.gradient(batch, step)
        return result


class Pictures:
    """As many regions as words are said of them, so that batches differ in size."""

    ids = tuple(str(number) for number in range(len(TEXTS)))

    def __len__(self) -> int:
        return len(TEXTS)

    def batch(self, indices: list[int]) -> RegionBatch:
        draws = [torch.Generator().manual_seed(index) for index in indices]
        counts = [len(TEXTS[index].split()) for index in indices]
        features = [torch.randn(count, 8, generator=draw) for count, draw in zip(counts, draws, strict=True)]
        return RegionBatch.of(features, [torch.zeros(count, 4) for count in counts], [self.ids[i] for i in indices])


def trained(folder: Path, **given: Any) -> UpDown:
    seed_everything(0)
    data = CaptionedImages("toys", "train", Pictures(), TEXTS, np.arange(len(TEXTS)))  # type: ignore[arg-type]
    model = UpDown(UpDownConfig(region_dim=8, word_dim=8, dim=8, attention_dim=8), Vocabulary.build(TEXTS, 1))
    task = CaptioningTask(data, data, model.read, CaptioningConfig(min_count=1, max_words=8, **given))
    config = TrainerConfig(steps=8, batch_size=4, accelerator="cpu", evaluate_every=100, learning_rate=1e-2)
    Trainer(config, folder, Console(quiet=True)).fit(model, task)
    return model


@pytest.mark.parametrize("after", [None, 4])
def test_captured_steps_are_the_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int | None) -> None:
    """The same weights come out, and the shapes that were captured are few: that is what makes it worth while."""
    settings = {"reward": RewardConfig(after=after, num_samples=3, baseline="samples")}
    plain = trained(tmp_path / "plain", **settings)
    made: list[Recorder] = []
    monkeypatch.setattr(Loop, "_graphed", lambda loop: made.append(Recorder(loop._gradient)) or made[-1])
    captured = trained(tmp_path / "captured", **settings)
    given = made[0].given
    assert [kind for kind, _ in given] == [PairBatch] * (8 if after is None else 4) + [SpokenBatch] * (after or 0)
    assert len(set(given)) <= 4
    for one, other in zip(plain.parameters(), captured.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_nothing_is_captured_on_a_cpu_or_where_it_is_not_wanted(tmp_path: Path) -> None:
    class Fabric:
        device, world_size = torch.device("cuda"), 1

    def graphed(**given: Any) -> Any:
        fabric = Fabric()
        for name in ("device", "world_size"):
            if name in given:
                setattr(fabric, name, given.pop(name))
        made = object.__new__(Loop)
        made.config, made.fabric, made.model = TrainerConfig(**given), fabric, nn.Linear(1, 1)  # type: ignore[assignment]
        return made._graphed()

    assert graphed(device=torch.device("cpu")) is None
    assert graphed(cuda_graphs=False) is None
    assert graphed(world_size=2) is None


def test_the_tensors_of_a_batch_come_and_go_in_one_order() -> None:
    texts = TextBatch.of([[1, 4, 2], [1, 2]], [["<start>", "a", "<end>"], ["<start>", "<end>"]])
    images = RegionBatch.of([torch.ones(2, 3)], [torch.zeros(2, 4)], ["one"])
    batch = PairBatch(images, texts, torch.zeros(2, dtype=torch.long), torch.zeros(1, dtype=torch.long))
    tensors = tensors_of(batch)
    assert len(tensors) == 7
    other = with_tensors(batch, [tensor.clone() for tensor in tensors])
    assert isinstance(other, PairBatch)
    assert other.texts.words == texts.words
    assert all(torch.equal(one, two) for one, two in zip(tensors, tensors_of(other), strict=True))
    assert all(one is not two for one, two in zip(tensors, tensors_of(other), strict=True))
