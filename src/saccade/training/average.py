"""The running average of a model's weights over training: steadier than the weights of any one step."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn


class RunningAverage:
    """w̄ ← d w̄ + (1 − d) w after every step, with d rising to `decay` so that the first steps are soon forgotten."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.source = model
        self.model = copy.deepcopy(model).requires_grad_(False)

    @torch.no_grad()
    def update(self, step: int) -> None:
        """After the update of `step`, counted from 0."""
        decay = min(self.decay, (1 + step) / (10 + step))
        averaged: list[Tensor] = list(self.model.parameters())
        weights: list[Tensor] = list(self.source.parameters())
        torch._foreach_lerp_(averaged, weights, 1 - decay)
        for kept, now in zip(self.model.buffers(), self.source.buffers(), strict=True):
            kept.copy_(now)
