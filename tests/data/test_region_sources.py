"""A split in memory gives the very batches that its files give."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import torch

from saccade.batch import RegionBatch
from saccade.data import CaptionedImages, DataConfig
from saccade.data.store.sources import held_in_memory
from saccade.features import open_split
from saccade.training.run import run_config, train_run

SIZES = (3, 1, 5, 2, 0, 4)


class Ragged:
    """Pictures of different numbers of regions."""

    dim = 4
    ids = tuple(f"p{i}" for i in range(len(SIZES)))

    def __len__(self) -> int:
        return len(SIZES)

    def batch(self, indices: list[int]) -> RegionBatch:
        features = [np.random.default_rng(i).normal(size=(SIZES[i], 4)).astype(np.float32) for i in indices]
        boxes = [np.zeros((SIZES[i], 4), np.float32) for i in indices]
        scores = [np.full(SIZES[i], 0.5, np.float32) for i in indices]
        return RegionBatch.of(features, boxes, [self.ids[i] for i in indices], scores)


@pytest.mark.parametrize("indices", [[0, 1, 2, 3, 4, 5], [3, 1], [4], [2, 2, 0]])
def test_batches_are_the_same(indices: list[int]) -> None:
    data = CaptionedImages("toy", "train", Ragged(), ("a",), np.array([0]))
    held = held_in_memory(data)
    expected, found = data.images.batch(indices), held.images.batch(indices)
    assert isinstance(found, RegionBatch)
    for field in fields(expected):
        one, other = getattr(found, field.name), getattr(expected, field.name)
        assert torch.equal(one, other) if isinstance(other, torch.Tensor) else one == other


def test_training_from_memory_gives_the_same_weights(tmp_path: Path) -> None:
    words = ["data=world", "pictures=60", "steps=3", "dim=16", "word_dim=8", "batch_size=8", "accelerator=cpu"]
    for name, more in (("files", []), ("memory", ["in_memory=true"])):
        train_run(run_config("scan", [*words, *more]), tmp_path / name)
    first, second = ((tmp_path / name / "best" / "model.safetensors").read_bytes() for name in ("files", "memory"))
    assert first == second
    assert len(open_split(DataConfig(pictures=60), "train").images) > 8
