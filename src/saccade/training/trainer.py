"""The trainer: takes any model through any task, and can be killed at any moment without a trace in the result."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from rich.console import Console
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from saccade.core.errors import SaccadeError
from saccade.core.threads import ahead
from saccade.tasks.base import JointlyTrained, Loss, Sampler, StagedTask, Task, sampler_of
from saccade.training.config import TrainerConfig, differing_key
from saccade.training.cuda_graphs import GraphedSteps
from saccade.training.folder import (
    Progress,
    RunFolder,
    environment,
    load_checkpoint,
    load_weights,
    record_environment,
    save_checkpoint,
    save_model,
)
from saccade.training.logs import Display, RunLog
from saccade.training.optimiser import RunningAverage, learning_rate, make_optimiser
from saccade.training.seeds import BatchSampler, kept_random_state, random_state, restore_random_state, seed_everything
from saccade.training.sharding import FSDP, Whole, full_optimiser, full_weights, load_optimiser, strategy_of

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
    stopped_early: bool  # patience ran out
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
            strategy=strategy_of(config),
            precision="bf16-mixed" if config.precision == "bf16" else "32-true",
        )
        fabric.launch()
        with ExitStack() as stack:
            on_rank_zero(fabric, lambda: stack.enter_context(self.folder.locked()))
            on_rank_zero(fabric, lambda: self.folder.prepare(resume))
            return self._fit(fabric, model, task)

    def _fit(self, fabric: Fabric, model: nn.Module, task: Task[Any]) -> FitResult:
        config, folder = self.config, self.folder
        ranks = fabric.global_rank, fabric.world_size

        def make_sampler(count: int, batch_size: int | None = None) -> BatchSampler:
            return BatchSampler(count, batch_size or config.batch_size, config.seed, config.drop_last, *ranks)

        sampler = sampler_of(task, make_sampler)
        checkpoint = self._checkpoint(model, task, fabric.world_size)
        loop = Loop(config, fabric, model, task, sampler, folder)
        progress = Progress()
        seed_everything(config.seed, fabric.global_rank)
        if checkpoint is not None:
            progress = Progress(**checkpoint["progress"])
            loop.restore_optimiser(checkpoint["optimiser"])
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
            with display.bar:
                stopped = loop.run(progress, log, display, clock=lambda: time.perf_counter() - started)
        finally:
            if log is not None:
                log.close()
        result = loop.result
        on_rank_zero(fabric, lambda: save_model(result, folder.last, progress.last))
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
        before, now = checkpoint["config"], dataclasses.asdict(self.config)
        if (key := differing_key(before, now)) is not None:
            raise SaccadeError(
                f"{path} was trained with {key}={before.get(key)} and cannot be resumed with {key}={now.get(key)}"
            )
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


class LossModule(nn.Module):
    """Runs a whole loss inside one `forward`, whichever of the model's methods it calls.

    Mixed precision and DDP act on calls of `forward` only; this way tasks are free to call `encode_images` and the
    like on the plain model. The batch comes hidden in a function because Fabric would try to copy frozen dataclasses.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, loss: Callable[[nn.Module], Loss]) -> Loss:
        return loss(self.model)


class Loop:
    """One model, one task, one run folder, from some step to the last."""

    def __init__(
        self,
        config: TrainerConfig,
        fabric: Fabric,
        model: nn.Module,
        task: Task[Any],
        sampler: Sampler,
        folder: RunFolder,
    ) -> None:
        self.config, self.fabric, self.model, self.task = config, fabric, model, task
        self.sampler, self.folder = sampler, folder
        self.total_steps = config.steps or config.epochs * sampler.steps_per_epoch
        if config.accumulate > 1 and isinstance(task, JointlyTrained):
            raise SaccadeError("accumulate is for one task: of several that take turns, each has its own batch size")
        self.whole = Whole(model, fabric.device) if config.strategy == FSDP else None
        if self.whole is None:
            self.optimiser = make_optimiser(config, model)
            self._module, self._optimiser = fabric.setup(LossModule(model), self.optimiser)
        else:  # the weights that an optimiser is to move are there once they are shared out
            self._module = fabric.setup_module(LossModule(model))
            self.optimiser = make_optimiser(config, model)
            self._optimiser = fabric.setup_optimizers(self.optimiser)
        self.average = RunningAverage(model, config.average) if config.average else None
        self.graphed = self._graphed()

    def _graphed(self) -> GraphedSteps | None:
        """On one GPU; several exchange gradients while they are computed, which is not captured, nor are sums."""
        alone = self.fabric.world_size == 1 and self.config.accumulate == 1
        if not self.config.cuda_graphs or self.fabric.device.type != "cuda" or not alone:
            return None
        return GraphedSteps(self._gradient, list(self.model.parameters()))

    @property
    def result(self) -> nn.Module:
        """What is evaluated and saved: the model, or the running average of its weights. Every rank must ask."""
        if self.whole is not None:
            return self.whole.gather(self.model)
        return self.average.model if self.average is not None else self.model

    def restore_optimiser(self, state: dict[str, Any]) -> None:
        if self.whole is None:
            self.optimiser.load_state_dict(state)
        else:
            load_optimiser(self.model, self.optimiser, state)

    def _batches(self, step: int) -> list[tuple[Any, float]]:
        """The parts of a step's batch, and the share of each."""
        indices, parts = self.sampler.indices(step), self.config.accumulate
        if parts == 1:
            return [(self.task.batch(indices), 1.0)]
        size = -(-len(indices) // parts)
        chosen = [indices[first : first + size] for first in range(0, len(indices), size)]
        return [(self.task.batch(part), len(part) / len(indices)) for part in chosen]

    def run(self, progress: Progress, log: RunLog | None, display: Display, clock: Callable[[], float]) -> bool:
        """Train from `progress` to the end, keeping it up to date; True if patience ran out."""
        config, every_epoch = self.config, self.sampler.steps_per_epoch
        self.model.train()
        if self._out_of_patience(progress):
            return True
        steps = range(progress.step, self.total_steps)
        with closing(ahead(self._batches, steps, min(config.prefetch, 1), config.prefetch)) as upcoming:
            for batches in upcoming:
                figures = self._update(batches, progress.step)
                progress.step += 1
                progress.seconds = clock()
                step, epoch = progress.step, (progress.step - 1) // every_epoch + 1
                display.step(step, epoch, figures["loss"])
                for name, value in figures.items():
                    progress.totals[name] = progress.totals.get(name, 0.0) + value
                    progress.counts[name] = progress.counts.get(name, 0) + 1
                if step % config.log_every == 0:
                    self._log(progress, epoch, log)

                final, improved = step == self.total_steps, False
                if final or step % (config.evaluate_every or every_epoch) == 0:
                    improved = self._evaluate(progress, epoch, log, display)
                    progress.seconds = clock()
                    final = final or self._out_of_patience(progress)
                if final or improved or step % (config.checkpoint_every or every_epoch) == 0:
                    self._save(progress, improved)
                if final:
                    break
        return self._out_of_patience(progress)

    def _update(self, batches: list[tuple[Any, float]], step: int) -> dict[str, float]:
        """One step of the optimiser; what comes back is averaged over the ranks."""
        rate = learning_rate(self.config, step, step // self.sampler.steps_per_epoch, self.total_steps)
        if isinstance(self.task, JointlyTrained):
            rate *= self.task.rate(step)
        for group in self.optimiser.param_groups:
            group["lr"] = rate * group.get("factor", 1.0)
        found: dict[str, float | Tensor] = {}
        for number, (batch, share) in enumerate(batches, start=1):
            with self.fabric.no_backward_sync(self._module, enabled=number < len(batches) and self.whole is None):
                loss, own = self._learn(self.fabric.to_device(batch), step, share)
            for name, value in {"loss": loss, **own}.items():
                found[name] = found[name] + share * value if name in found else share * value
        limit = self.config.clip_norm or math.inf
        norm = self.fabric.clip_gradients(self._module, self._optimiser, max_norm=limit, error_if_nonfinite=False)
        assert norm is not None
        figures = {name: float(value) for name, value in found.items()}  # waits for the GPU
        figures = mean_over_ranks(self.fabric, figures)
        if not math.isfinite(figures["loss"]):
            raise SaccadeError(
                f"the loss is {figures['loss']} at step {step + 1} (learning rate {rate:g}): training stopped, "
                f"{self.folder.path} keeps what it held before"
            )
        figures["gradient_norm"] = float(norm.full_tensor() if isinstance(norm, DTensor) else norm)
        if not math.isfinite(figures["gradient_norm"]):
            raise SaccadeError(
                f"the gradient is not finite at step {step + 1} (loss {figures['loss']:g}): training stopped, "
                f"{self.folder.path} keeps what it held before"
            )
        self._optimiser.step()
        self._optimiser.zero_grad()
        if self.average is not None:
            self.average.update(step)
        return {"learning_rate": rate, **figures}

    def _learn(self, batch: Any, step: int, share: float = 1.0) -> Loss:
        """The loss, of whose gradient a share is left with the weights."""
        if not isinstance(self.task, StagedTask):
            return self._gradient(batch, step, share)
        with torch.no_grad(), self.fabric.autocast():
            batch = self.task.before_loss(self.model, batch, step)
        padded = self.task.graph_batch(self.model, batch, step) if self.graphed is not None else None
        if self.graphed is None or padded is None:
            return self._gradient(batch, step, share)
        return self.graphed.take(padded, step)

    def _gradient(self, batch: Any, step: int, share: float = 1.0) -> Loss:
        loss, own = self._module(lambda model: self.task.loss(model, batch, step))
        self.fabric.backward(loss if share == 1 else share * loss)
        return loss.detach(), {
            name: value.detach() if isinstance(value, Tensor) else value for name, value in own.items()
        }

    def _log(self, progress: Progress, epoch: int, log: RunLog | None) -> None:
        """A row with the means since the last row, of each figure over the steps that had it."""
        means = {name: total / progress.counts[name] for name, total in progress.totals.items()}
        progress.totals, progress.counts = {}, {}
        if log is not None:
            log.write(progress.step, epoch, "train", progress.seconds, means)

    def _evaluate(self, progress: Progress, epoch: int, log: RunLog | None, display: Display) -> bool:
        """Measure the model on every rank; rank zero's figures count. How often this happens never changes training."""
        result = self.result.eval()
        with kept_random_state(), torch.no_grad(), self.fabric.autocast():
            metrics = {name: float(value) for name, value in self.task.evaluate(result).items()}
        result.train()
        if self.fabric.world_size > 1:
            metrics = self.fabric.broadcast(metrics)
        selection = self.task.selection
        if selection not in metrics:
            raise SaccadeError(f'the evaluation gave no metric "{selection}" to select by, only {", ".join(metrics)}')
        improved = metrics[selection] > progress.best.get(selection, -math.inf)
        progress.last = metrics
        if improved:
            progress.best, progress.best_step, progress.stale = metrics, progress.step, 0
        elif progress.step > self.config.patience_from:
            progress.stale += 1
        if log is not None:
            log.write(progress.step, epoch, "dev", progress.seconds, metrics)
        display.evaluated(progress.step, epoch, metrics, selection, progress.best.get(selection, math.nan), improved)
        return improved

    def _out_of_patience(self, progress: Progress) -> bool:
        return 0 < self.config.patience <= progress.stale

    def _save(self, progress: Progress, improved: bool) -> None:
        """The best model first, then the checkpoint that counts it as best."""
        result = self.result
        if improved:
            on_rank_zero(self.fabric, lambda: save_model(result, self.folder.best, progress.best))
        contents = {
            "config": dataclasses.asdict(self.config),
            "items": len(self.task),
            "world_size": self.fabric.world_size,
            "model": self.model.state_dict() if self.whole is None else full_weights(self.model),
            "random": from_every_rank(self.fabric, random_state()),
        }
        if self.whole is None:
            contents["optimiser"] = self.optimiser.state_dict()
        else:
            contents["optimiser"] = full_optimiser(self.model, self.optimiser)
        if self.average is not None:
            contents["average"] = self.average.model.state_dict()
        on_rank_zero(self.fabric, lambda: save_checkpoint(self.folder.checkpoint, contents, progress))


def on_rank_zero(fabric: Fabric, action: Callable[[], object]) -> None:
    """Do something once, by rank zero; if it fails, every rank learns why."""
    if fabric.world_size == 1:
        action()
        return
    failure: str | None = None
    if fabric.is_global_zero:
        try:
            action()
        except SaccadeError as error:
            failure = str(error)
    failure = fabric.broadcast(failure)
    if failure is not None:
        raise SaccadeError(failure)


def mean_over_ranks(fabric: Fabric, figures: Mapping[str, float]) -> dict[str, float]:
    """Each figure averaged over the ranks, which must all name the same figures."""
    if fabric.world_size == 1:
        return dict(figures)
    names = sorted(figures)
    values = torch.tensor([figures[name] for name in names], dtype=torch.float32, device=fabric.device)
    means = fabric.all_reduce(values, reduce_op="mean")
    assert isinstance(means, torch.Tensor)
    return dict(zip(names, means.tolist(), strict=True))


def from_every_rank(fabric: Fabric, value: Any) -> list[Any]:
    """One plain value of each rank, in order of rank."""
    if fabric.world_size == 1:
        return [value]
    values: list[Any] = [None] * fabric.world_size
    torch.distributed.all_gather_object(values, value)
    return values
