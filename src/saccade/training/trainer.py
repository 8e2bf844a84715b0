"""The trainer: takes any model through any task, and can be killed at any moment without a trace in the result."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from torch import nn

from saccade.core.errors import SaccadeError
from saccade.tasks.base import Task
from saccade.training.checkpoint import Progress, load_checkpoint, load_weights, save_model
from saccade.training.config import TrainerConfig, check_same_settings
from saccade.training.display import Display
from saccade.training.folder import RunFolder, environment, record_environment
from saccade.training.logs import RunLog
from saccade.training.loop import Loop
from saccade.training.ranks import on_rank_zero
from saccade.training.sampler import BatchSampler
from saccade.training.seeds import restore_random_state, seed_everything

if TYPE_CHECKING:
    from lightning_fabric import Fabric

MAX_HEADLINE_FIGURES = 6  # that fit into a line


@dataclass(frozen=True)
class FitResult:
    """How a run ended."""

    best: dict[str, float]  # the metrics of the model in best/
    best_step: int
    last: dict[str, float]  # the metrics of the model in last/
    steps: int
    seconds: float  # over all the times the run was taken up
    stopped_early: bool
    selection: str = ""  # the metric that chose the best

    def headline(self) -> dict[str, float]:
        """What to say of the best model in a line: what it was chosen by, then a few figures beside it."""
        few = [k for k in self.best if len(self.best) <= MAX_HEADLINE_FIGURES or k.endswith("_r1")]
        return {k: self.best[k] for k in (self.selection, *few) if k in self.best}


class Trainer:
    """Trains into a run folder: settings and surroundings, metrics, checkpoints, the best and the last model."""

    def __init__(
        self,
        config: TrainerConfig,
        folder: Path | str,
        console: Console | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        self.config = config
        self.folder = RunFolder(folder)
        self.console = console or Console()
        self.extra = dict(extra or {})

    def fit(self, model: nn.Module, task: Task[Any], resume: bool = False) -> FitResult:
        """Train `model`, which needs `save_pretrained(folder)`, and leave it with its last weights (not averaged).

        With `resume`, go on from the folder's checkpoint; if the run was killed before its first one, begin again.
        """
        from lightning_fabric import Fabric  # late: it takes seconds to import

        config = self.config
        fabric = Fabric(
            accelerator=config.accelerator,
            devices=config.devices,
            num_nodes=config.nodes,
            strategy=config.strategy,
            precision="bf16-mixed" if config.precision == "bf16" else "32-true",
        )
        fabric.launch()
        with ExitStack() as stack:
            on_rank_zero(fabric, lambda: stack.enter_context(self.folder.locked()))
            on_rank_zero(fabric, lambda: self.folder.prepare(resume))
            return self._fit(fabric, model, task)

    def _fit(self, fabric: Fabric, model: nn.Module, task: Task[Any]) -> FitResult:
        config, folder = self.config, self.folder
        sampler = BatchSampler(
            len(task), config.batch_size, config.seed, config.drop_last, fabric.global_rank, fabric.world_size
        )
        checkpoint = self._checkpoint(model, task, fabric.world_size)
        loop = Loop(config, fabric, model, task, sampler, folder)
        progress = Progress()
        seed_everything(config.seed, fabric.global_rank)
        if checkpoint is not None:
            progress = Progress(**checkpoint["progress"])
            loop.optimiser.load_state_dict(checkpoint["optimiser"])
            if loop.average is not None:
                load_weights(loop.average.model, checkpoint["average"], folder.checkpoint)
            restore_random_state(checkpoint["random"][fabric.global_rank])

        display = Display(
            self.console,
            progress.step,
            loop.total_steps,
            -(-loop.total_steps // sampler.steps_per_epoch),
            config.batch_size,
            enabled=fabric.is_global_zero,
        )
        log = None
        if fabric.is_global_zero:
            now = environment(fabric.device, fabric.world_size)
            changed = record_environment(folder.environment, now, self.extra, resumed=checkpoint is not None)
            if checkpoint is not None:
                display.note(f"resuming {folder.path} at step {progress.step}")
            if changed:
                display.note(f"note: {'; '.join(changed)}: the result may differ in its last digits")
            log = RunLog(folder.metrics, folder.tensorboard, progress.step)
        started = time.perf_counter() - progress.seconds
        try:
            with display:
                stopped = loop.run(progress, log, display, clock=lambda: time.perf_counter() - started)
        finally:
            if log is not None:
                log.close()
        on_rank_zero(fabric, lambda: save_model(loop.result, folder.last))
        return FitResult(
            progress.best,
            progress.best_step,
            progress.last,
            progress.step,
            progress.seconds,
            stopped_early=stopped,
            selection=task.selection,
        )

    def _checkpoint(self, model: nn.Module, task: Task[Any], world_size: int) -> dict[str, Any] | None:
        """The folder's checkpoint, found to fit these settings, this task and this model, whose weights it sets."""
        path = self.folder.checkpoint
        if not path.exists():
            return None
        checkpoint = load_checkpoint(path)
        check_same_settings(checkpoint["config"], self.config, path)
        if checkpoint["items"] != len(task):
            raise SaccadeError(
                f"{path} was trained on {checkpoint['items']} items and cannot be resumed on {len(task)}: "
                "the data has changed"
            )
        if checkpoint["world_size"] != world_size:
            raise SaccadeError(
                f"{path} was trained on {checkpoint['world_size']} devices and cannot be resumed on {world_size}"
            )
        load_weights(model, checkpoint["model"], path)
        return checkpoint
