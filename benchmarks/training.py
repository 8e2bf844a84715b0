"""A step of training: encode, compare, lose, learn. How long it takes, and how long the GPU waits meanwhile.

`STEPS` has the ways to run a step; each takes a model, its optimiser, a batch and its loss, and gives a function that
takes one step. A captioner's step as a CUDA graph is held against the same call by call, SCAN's steps against the same
with the official loop over captions in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from benchmarks.bench import Bench, Case
from benchmarks.official import scan_loop
from benchmarks.problems import FORMS, LONGEST, SHORTEST
from benchmarks.rows import Row
from benchmarks.timing import Run, busy_seconds
from saccade.batch import END, PairBatch, RegionBatch, TextBatch
from saccade.language import Vocabulary
from saccade.models import (
    Captioner,
    Matcher,
    Scan,
    ScanConfig,
    ShowAttendTell,
    ShowAttendTellConfig,
    UpDown,
    UpDownConfig,
)
from saccade.nn import triplet_loss
from saccade.training import TrainerConfig
from saccade.training.cuda_graphs import GraphedSteps
from saccade.training.optimiser import make_optimiser

Loss = Callable[[PairBatch], Tensor]
Step = Callable[[nn.Module, Optimizer, PairBatch, Loss], Run]
REGION_DIM = 2048
CAPTIONERS: dict[str, Callable[[Vocabulary, bool], Captioner]] = {
    "Up-Down": lambda words, quick: UpDown(
        UpDownConfig(dim=16, word_dim=16, region_dim=32, attention_dim=16) if quick else UpDownConfig(), words
    ),
    "Show, Attend and Tell": lambda words, quick: ShowAttendTell(
        ShowAttendTellConfig(dim=16, word_dim=16, region_dim=32, dropout=0.0)
        if quick
        else ShowAttendTellConfig(dropout=0.0),  # else two ways of a step would forget other things
        words,
    ),
}


def eager(model: nn.Module, optimiser: Optimizer, batch: PairBatch, loss: Loss) -> Run:
    """Call by call, as PyTorch runs a step by itself."""

    def step() -> None:
        optimiser.zero_grad()
        loss(batch).backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), 2.0)
        optimiser.step()

    return step


def as_cuda_graph(model: nn.Module, optimiser: Optimizer, batch: PairBatch, loss: Loss) -> Run:
    """As the trainer takes the steps of captioners on a GPU: the loss and its gradient are one launch."""

    def gradient(given: PairBatch, step: int) -> tuple[Tensor, dict[str, float]]:
        found = loss(given)
        found.backward()  # type: ignore[no-untyped-call]
        return found.detach(), {}

    steps = GraphedSteps(gradient, list(model.parameters()))

    def step() -> None:
        optimiser.zero_grad()
        steps.take(batch, 0)
        nn.utils.clip_grad_norm_(model.parameters(), 2.0)
        optimiser.step()

    return step


STEPS: dict[str, Step] = {"call by call": eager, "CUDA graph": as_cuda_graph}


def cpu(bench: Bench) -> Iterator[Case]:
    yield Case("training step, SCAN", partial(scan_step, bench, 64, False, "call by call"))
    yield Case("training step, Up-Down", partial(caption_step, bench, "Up-Down", 32, False, "call by call"))


def gpu(bench: Bench) -> Iterator[Case]:
    ways = list(STEPS) if bench.device == "cuda" else ["call by call"]  # a CPU has no graphs
    for way in ways:
        yield Case(f"training step, SCAN, bfloat16, {way}", partial(scan_step, bench, 128, True, way))
    for name in CAPTIONERS:
        for way in ways:
            run = partial(caption_step, bench, name, 128, True, way)
            yield Case(f"training step, {name}, bfloat16, {way}", run)


def scan_step(bench: Bench, batch: int, mixed: bool, way: str) -> Row:
    count = bench.size(batch, 4)
    examined = examples(bench, count)
    config = (
        ScanConfig(dim=16, word_dim=8, region_dim=32) if bench.quick else ScanConfig(budget_mb=2048 if mixed else 256)
    )

    def fresh() -> tuple[Scan, Optimizer]:
        torch.manual_seed(0)
        model = Scan(config, vocabulary(bench)).to(bench.device)
        return model, make_optimiser(TrainerConfig(), model)

    def loss(model: Matcher, official: bool, batch: PairBatch) -> Tensor:
        with torch.autocast(bench.device, torch.bfloat16, enabled=mixed and not official):
            assert isinstance(batch.images, RegionBatch)
            seen, read = model.encode_images(batch.images), model.encode_texts(batch.texts)
            if not official:
                return triplet_loss(model.similarity(seen, read))
            lengths = batch.texts.lengths.tolist()
            return triplet_loss(scan_loop(seen.regions, read.words, lengths, "text→image", FORMS["text→image"]))

    model, optimiser = fresh()
    ours = STEPS[way](model, optimiser, examined, partial(loss, model, False))
    slow, slow_optimiser = fresh()
    loop = eager(slow, slow_optimiser, examined, partial(loss, slow, True))
    difference = None
    if way != "call by call":
        other, other_optimiser = fresh()
        plain = partial(loss, other, False)
        difference = _after_steps(
            ours, eager(other, other_optimiser, examined, plain), partial(loss, model, False), plain, examined
        )
    _, peak = bench.peak(ours)
    spent = bench.best_of({"ours": ours, "loop": loop}, runs=8)
    return Row(
        name="",
        shape=f"{count} × {count}, 36 regions, {config.region_dim:,} → {config.dim:,}-d",
        seconds=spent["ours"],
        official_seconds=spent["loop"],
        difference=difference,
        peak_bytes=peak,
        figures=idle(bench, ours, spent["ours"]),
    )


def caption_step(bench: Bench, name: str, batch: int, mixed: bool, way: str) -> Row:
    count = bench.size(batch, 4)
    examined = examples(bench, count)

    def fresh() -> tuple[Captioner, Optimizer]:
        torch.manual_seed(0)
        model = CAPTIONERS[name](vocabulary(bench), bench.quick).to(bench.device)
        return model, make_optimiser(TrainerConfig(), model)

    def loss(model: Captioner, batch: PairBatch) -> Tensor:
        texts = batch.texts
        with torch.autocast(bench.device, torch.bfloat16, enabled=mixed):
            forced = model.teacher_force(
                model.start_training(model.extract(batch.images), texts, batch.owner), texts.tokens[:, :-1]
            )
            wanted = texts.mask[:, 1:]
            return forced.nll(texts.tokens[:, 1:], wanted).sum() / wanted.sum()

    model, optimiser = fresh()
    ours = STEPS[way](model, optimiser, examined, partial(loss, model))
    runs = {"ours": ours}
    difference = None
    if way != "call by call":
        other, other_optimiser = fresh()
        runs["call by call"] = eager(other, other_optimiser, examined, partial(loss, other))
        difference = _after_steps(ours, runs["call by call"], partial(loss, model), partial(loss, other), examined)
    _, peak = bench.peak(ours)
    spent = bench.best_of(runs, runs=8)
    return Row(
        name="",
        shape=f"{count} captions, 36 regions, {len(model.vocabulary):,} words",
        seconds=spent["ours"],
        official_seconds=spent.get("call by call"),
        difference=difference,
        peak_bytes=peak,
        figures=idle(bench, ours, spent["ours"]),
        note="against the same step call by call" if way != "call by call" else "",
    )


def _after_steps(one: Run, other: Run, loss: Loss, other_loss: Loss, batch: PairBatch) -> float:
    """How far the losses of two ways are apart after some steps; the first of a shape are not replayed yet."""
    for _ in range(6):
        one()
        other()
    with torch.no_grad():
        return float((loss(batch) - other_loss(batch)).abs())


def idle(bench: Bench, step: Run, wall: float, steps: int = 5) -> dict[str, float]:
    """The share of a step's time in which the GPU does nothing."""
    if bench.device != "cuda":
        return {}
    busy = busy_seconds(lambda: [step() for _ in range(steps)]) / steps
    return {"idle": max(0.0, 1 - busy / wall)}


def examples(bench: Bench, count: int) -> PairBatch:
    """Pictures as an extractor would see them, and for each a caption of random words."""
    draw = torch.Generator().manual_seed(0)
    mask = torch.ones(count, 36, dtype=torch.bool)
    features = torch.randn(count, 36, bench.size(REGION_DIM, 32), generator=draw).relu()
    images = RegionBatch(features, mask, torch.rand(count, 36, 4, generator=draw))
    lengths = torch.randint(SHORTEST, LONGEST + 1, (count,), generator=draw).tolist()
    words = len(vocabulary(bench))
    tokens = [[1, *torch.randint(4, words, (length,), generator=draw).tolist(), END] for length in lengths]
    return PairBatch(images, TextBatch.of(tokens), torch.arange(count), torch.arange(count)).to(bench.device)


def vocabulary(bench: Bench) -> Vocabulary:
    count = bench.size(8000, 30)
    return Vocabulary(("<pad>", "<start>", "<end>", "<unk>", *(f"word{i}" for i in range(count))))
