"""Learning rates as a pure function of the step: nothing to save, nothing to restore."""

from __future__ import annotations

import math

from saccade.training.config import TrainerConfig


def learning_rate(config: TrainerConfig, step: int, epoch: int, total_steps: int) -> float:
    """The learning rate of update `step` (from 0) in `epoch` (from 0), of `total_steps` in all.

    Warm-up, if any, rises in a straight line to the full rate; then the schedule takes over. `step` is the schedule of
    the 2018–2020 matching papers, `rate · decay^(epoch // decay_every)`; cosine and linear fall to zero at the end.
    """
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
