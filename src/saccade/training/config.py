"""The trainer's settings, checked where they are made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from saccade.core.config import check_ranges
from saccade.core.errors import SaccadeError

Optimiser = Literal["adam", "adamax", "adamw", "sgd"]
Schedule = Literal["constant", "step", "cosine", "linear", "warmup_linear", "one_cycle"]
Precision = Literal["fp32", "bf16"]

MAY_CHANGE = frozenset(
    {"epochs", "steps", "patience", "patience_from", "checkpoint_every", "log_every", "prefetch", "cuda_graphs"}
)
"""Settings that a resumed run may give anew: how long to go on, and what does not touch the weights.

`cuda_graphs` is among them so that a step that cannot be captured need not end a run. Captured batches are padded, so
that dropout draws other numbers for them: on a GPU, and there alone, a change of it changes the run as another seed
would.
"""


@dataclass(frozen=True)
class TrainerConfig:
    """How to train, whatever the task. The defaults are those of SCAN on Flickr30k."""

    epochs: int = 30
    steps: int | None = None  # train for this many steps instead of `epochs`
    batch_size: int = 128  # over all devices together
    accumulate: int = 1  # parts in which a step's batch passes through the model, their gradients added up
    drop_last: bool = True  # leave out an epoch's last batch when it is smaller than the others
    optimiser: Optimiser = "adam"
    learning_rate: float = 2e-4
    weight_decay: float = 0.0
    schedule: Schedule = "step"
    decay_every: int = 15  # epochs between two decays, for the step schedule
    decay: float = 0.1  # the factor of each
    warmup_steps: int = 0  # steps over which the learning rate rises from zero
    warmup_share: float = 0.1  # of all steps, over which it rises in the one_cycle and warmup_linear schedules
    average: float = 0.0  # decay of a running average of the weights, which is what is evaluated and saved; 0: none
    clip_norm: float = 2.0  # the largest norm of all gradients together; 0 does not clip
    precision: Precision = "fp32"
    accelerator: str = "auto"  # auto, cpu, cuda, mps
    devices: int = 1  # on each machine
    nodes: int = 1  # machines
    strategy: str = "auto"  # auto, ddp, ddp_find_unused_parameters_true, fsdp
    evaluate_every: int = 0  # steps; 0 evaluates once an epoch
    checkpoint_every: int = 0  # steps; 0 saves once an epoch
    patience: int = 0  # evaluations without a new best before stopping; 0 never stops early
    patience_from: int = 0  # steps before which patience is not lost: stages that must come first
    log_every: int = 10  # steps between two rows of the log
    cuda_graphs: bool = True  # on a GPU, steps of a recurring shape are captured once and replayed, where a task can
    prefetch: int = 2  # batches made ahead in the background; 0 makes them when needed
    seed: int = 0

    def __post_init__(self) -> None:
        check_ranges(self, "epochs steps batch_size accumulate decay_every devices nodes log_every", "at least 1")
        check_ranges(self, "weight_decay warmup_steps clip_norm evaluate_every checkpoint_every", "zero or more")
        check_ranges(self, "patience patience_from prefetch seed", "zero or more")
        check_ranges(self, "learning_rate", "more than zero")
        check_ranges(self, "average warmup_share", "at least 0 and less than 1")
        check_ranges(self, "decay", "more than 0 and at most 1")
        if self.strategy not in ("auto", "fsdp") and not self.strategy.startswith("ddp"):
            raise SaccadeError(
                f"strategy must be auto, ddp, ddp_find_unused_parameters_true or fsdp, not {self.strategy}"
            )
        if self.strategy == "fsdp" and self.average:
            raise SaccadeError("average keeps a second model, whole: strategy=fsdp needs average=0")


def differing_key(
    old: Mapping[str, Any], new: Mapping[str, Any], may_change: Iterable[str] = MAY_CHANGE, where: str = ""
) -> str | None:
    """The dotted path of the first setting that is not the same in both, or None; `may_change` names exceptions."""
    for key in dict.fromkeys((*old, *new)):
        if key in may_change:
            continue
        path, before, after = f"{where}{key}", old.get(key), new.get(key)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            inner = differing_key(before, after, may_change, f"{path}.")
            if inner is not None:
                return inner
        elif before != after:
            return path
    return None
