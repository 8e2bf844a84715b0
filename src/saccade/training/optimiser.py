"""How weights move: the optimiser, its learning rate at each step, and the running average of the weights."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, Adamax, AdamW, Optimizer

from saccade.core.errors import SaccadeError
from saccade.training.config import TrainerConfig


def make_optimiser(config: TrainerConfig, model: nn.Module) -> Optimizer:
    """A model may say by `parameter_groups()` that some of its weights learn at another rate (`factor`)."""
    own: Callable[[], list[dict[str, Any]]] | None = getattr(model, "parameter_groups", None)
    groups = own() if own is not None else [{"params": model.parameters()}]
    groups = [{**group, "params": [w for w in group["params"] if w.requires_grad]} for group in groups]
    groups = [group for group in groups if group["params"]]
    if not groups:
        raise SaccadeError(f"{type(model).__name__} has no weights to train")
    if config.optimiser == "sgd":
        return SGD(groups, lr=config.learning_rate, weight_decay=config.weight_decay, momentum=0.9)
    kinds: dict[str, type[Adam | Adamax | AdamW]] = {"adam": Adam, "adamax": Adamax, "adamw": AdamW}
    return kinds[config.optimiser](groups, lr=config.learning_rate, weight_decay=config.weight_decay)


def learning_rate(config: TrainerConfig, step: int, epoch: int, total_steps: int) -> float:
    """The learning rate of update `step` (from 0) in `epoch` (from 0), of `total_steps` in all.

    Warm-up, if any, rises in a straight line to the full rate; then the schedule takes over. `step` is the schedule of
    the 2018–2020 matching papers, `rate · decay^(epoch // decay_every)`; cosine and linear fall to zero at the end;
    warmup_linear is BERT's, which rises over its own share of the steps and then falls to zero, both in straight lines;
    one_cycle (Smith, Topin 2017) rises from 1/25 of the rate over its own share of the steps, then falls to 4e-6 of it,
    both in half a cosine.
    """
    if config.schedule == "one_cycle":
        top = max(config.warmup_share * total_steps - 1, 0.0)
        low, along = (1 / 25, 1 - step / top) if step < top else (4e-6, (step - top) / max(total_steps - 1 - top, 1))
        return config.learning_rate * (low + (1 - low) * (1 + math.cos(math.pi * min(along, 1.0))) / 2)
    if config.schedule == "warmup_linear":
        along, share = (step + 1) / total_steps, config.warmup_share
        return config.learning_rate * (along / share if along < share else (1 - step / total_steps) / (1 - share))
    if step < config.warmup_steps:
        return config.learning_rate * (step + 1) / config.warmup_steps
    progress = (step - config.warmup_steps) / max(1, total_steps - config.warmup_steps)
    if config.schedule == "step":
        factor = config.decay ** (epoch // config.decay_every)
    elif config.schedule == "cosine":
        factor = (1 + math.cos(math.pi * progress)) / 2
    elif config.schedule == "linear":
        factor = 1 - progress
    else:
        factor = 1.0
    return config.learning_rate * factor


class RunningAverage:
    """w̄ ← d w̄ + (1 − d) w after every step, with d rising to `decay` so that the first steps are soon forgotten.

    The average is steadier than the weights of any one step.
    """

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
