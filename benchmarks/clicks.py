"""Training MARN: impressions a second, with items and impressions on the device, and how much of the time it waits.

A step is what the trainer does: draw impressions, gather them and the items, loss, gradients, optimiser. On a GPU it is
taken call by call and as a CUDA graph. The recipe of the world's shoppers; then the paper's widths with image features
of 4,096 numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import torch

from benchmarks.bench import Bench, Case
from benchmarks.rows import Row
from benchmarks.training import idle
from saccade.data.clicks import Catalogue, Clicks, HeldImpressions
from saccade.models import Marn, MarnConfig
from saccade.tasks.clicks.task import ClicksConfig, ClicksTask, build_predictor, prepare_clicks
from saccade.training.config import TrainerConfig
from saccade.training.cuda_graphs import GraphedSteps
from saccade.training.optimiser import make_optimiser
from saccade.training.run import run_config
from saccade.vision.augment import AugmentConfig

WORDS = [f"word{n}" for n in range(200)]
IMPRESSIONS, BEHAVIOURS = 60_000, 400_000


def cases(bench: Bench) -> Iterator[Case]:
    ways = ("as a CUDA graph", "call by call") if bench.device == "cuda" else ("call by call",)
    recipe = run_config("marn", ["data=world_clicks"])
    sizes = {"the world's recipe": (recipe.model, recipe.trainer.batch_size, 256)}
    sizes["the paper's widths"] = (MarnConfig(), 1024, 4096)
    for name, size in sizes.items():
        for way in ways:
            yield Case(f"training step, MARN, {name}, {way}", partial(step_row, bench, way, *size))


def toy_clicks(bench: Bench, items: int, image_dim: int) -> Clicks:
    draw = np.random.default_rng(0)
    keys = np.stack([1 + np.arange(items), 1 + draw.integers(0, 50, items), 1 + draw.integers(0, 100, items)], axis=1)
    catalogue = Catalogue(
        "toys",
        np.concatenate([keys, np.zeros((1, 3), np.int64)]),
        ("item", "brand", "shop"),
        (*(" ".join(draw.choice(WORDS, 7)) for _ in range(items)), ""),
        draw.random((items + 1, 3)).astype(np.float32),
        ("price", "exposures", "clicks"),
        draw.standard_normal((items + 1, image_dim)).astype(np.float32),
    )
    count, past = bench.size(IMPRESSIONS, 200), bench.size(BEHAVIOURS, 500)
    first = draw.integers(0, past - 40, count)
    impressions = HeldImpressions(
        ("view", "click", "cart", "buy"),
        *(draw.integers(0, 4000, count), draw.integers(0, items, count), draw.integers(0, 2, count).astype(np.float32)),
        *(np.full(count, 1e6), first, first + draw.integers(10, 40, count)),
        *(draw.integers(0, items, past), draw.integers(1, 5, past), draw.random(past) * 1e6),
    )
    return Clicks("toys", "train", catalogue, impressions, device=bench.device)


def step_row(bench: Bench, way: str, config: MarnConfig, batch: int, image_dim: int) -> Row:
    batch = bench.size(batch, 8)
    if bench.quick:
        config = replace(config, dim=8, common_dim=8, state_dim=8, hidden_dim=8, attention_dim=8)
    settings, config = ClicksConfig(), replace(config, history=30)
    data = toy_clicks(bench, bench.size(2000, 30), bench.size(image_dim, 8))
    torch.manual_seed(0)
    model = build_predictor(Marn, config, prepare_clicks(data, settings)).to(bench.device).train()
    task = ClicksTask(model, data, data, settings, AugmentConfig())
    optimiser = make_optimiser(TrainerConfig(), model)
    draw, done = np.random.default_rng(1), 0

    def gradient(given: object, number: int) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        loss, _ = task.loss(model, given, number)  # type: ignore[arg-type]
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach(), {}

    graphed = GraphedSteps(gradient, list(model.parameters())) if way == "as a CUDA graph" else None

    def step() -> None:
        nonlocal done
        chosen = task.batch(draw.integers(0, len(data), batch).tolist())
        given = task.before_loss(model, chosen, done)
        if graphed is None:
            gradient(given, done)
        else:
            graphed.take(given, done)
        optimiser.step()
        optimiser.zero_grad()
        done += 1

    for _ in range(4):  # of a shape, the first steps are not replayed yet
        step()
    _, peak = bench.peak(step)
    spent = bench.best_of({"ours": step}, runs=8)["ours"]
    items = len(data.catalogue) - 1
    return Row(
        name="",
        shape=f"{batch:,} impressions, 30 behaviours, {items:,} items, image {image_dim:,} → {config.dim}",
        seconds=spent,
        peak_bytes=peak,
        figures={"examples_a_second": batch / spent, **idle(bench, step, spent)},
    )
