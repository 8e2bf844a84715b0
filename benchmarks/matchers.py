"""IMRAM, GSMN and CAMP: models whose score of a pair needs vectors of that pair; every pair, in a budget of memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks.bench import Bench, Case
from benchmarks.official import CAMP_PICTURES, camp_loop, gsmn_loop, imram_loop
from benchmarks.problems import Problem, largest_difference, part_of, problem
from benchmarks.rows import Row, Target
from benchmarks.timing import Run
from saccade.language import Vocabulary
from saccade.models import Camp, CampConfig, Gsmn, GsmnConfig, Imram, ImramConfig, Matcher

WORDS = Vocabulary(("<pad>", "<start>", "<end>", "<unk>"))


@dataclass(frozen=True)
class Contender:
    """A model at a size, the official loop, and how many pictures and captions tell how long that takes."""

    make: Callable[[int, int], Matcher]  # of a common space's size and a budget in MiB
    loop: Callable[[Any, Problem], Tensor]
    loop_images: int | None = None
    loop_texts: int = 11  # of all lengths


def _imram(model: Imram, given: Problem) -> Tensor:
    return imram_loop(model, given.images.regions, given.texts.words, given.lengths)


def _gsmn(model: Gsmn, given: Problem) -> Tensor:
    return gsmn_loop(model, given.images, given.texts)


def _camp(model: Camp, given: Problem) -> Tensor:
    return camp_loop(model, given.images, given.texts)


CONTENDERS = {
    "IMRAM, 3 steps of the words": Contender(
        lambda dim, mib: Imram(ImramConfig(dim=dim, budget_mb=mib, queries="words"), WORDS), _imram
    ),
    "IMRAM, 3 steps of both": Contender(lambda dim, mib: Imram(ImramConfig(dim=dim, budget_mb=mib), WORDS), _imram),
    "GSMN": Contender(lambda dim, mib: Gsmn(GsmnConfig(dim=dim, budget_mb=mib), WORDS), _gsmn),
    "CAMP": Contender(lambda dim, mib: Camp(CampConfig(dim=dim, budget_mb=mib), WORDS), _camp, CAMP_PICTURES),
}
ON_CPU = {"GSMN": 8}  # times the official loop; IMRAM and CAMP have no form of their own there
ON_GPU = {"IMRAM": 20, "GSMN": 20}
NEAR = Target("difference", "≤", 1e-5)  # float32 to float64


def cpu(bench: Bench) -> Iterator[Case]:
    for name, times in ON_CPU.items():
        wanted = Target("speedup", "≥", times), NEAR
        yield Case(f"{name}, float32", partial(all_pairs, bench, CONTENDERS[name], 32, 160, "float32", 256, wanted))


def gpu(bench: Bench) -> Iterator[Case]:
    for name, contender in CONTENDERS.items():
        system = name.split(",")[0]
        fast = (Target("speedup", "≥", ON_GPU[system]),) if system in ON_GPU else ()
        bounded = Target("peak_bytes", "≤", 8e9)
        for products, wanted in {"bfloat16": (*fast, bounded), "float32": (NEAR, bounded)}.items():
            yield Case(f"{name}, {products}", partial(all_pairs, bench, contender, 1000, 500, products, 2048, wanted))


@torch.no_grad()
def all_pairs(
    bench: Bench,
    contender: Contender,
    images: int,
    texts: int,
    products: str,
    budget_mb: int,
    targets: tuple[Target, ...],
) -> Row:
    """A fresh model on the codes of a problem; the loop in float32, as the official evaluations run."""
    given = linked(problem(bench.device, bench.size(images, 6), bench.size(texts, 10), dim=bench.size(1024, 32)))
    torch.manual_seed(0)
    model = contender.make(given.texts.words.shape[-1], budget_mb).to(bench.device).eval()
    some = given.some(contender.loop_images or len(given.images), contender.loop_texts)

    def ours() -> Tensor:
        with torch.autocast(bench.device, torch.bfloat16, enabled=products == "bfloat16"):
            return model.similarity(given.images, given.texts)

    runs: dict[str, Run] = {"ours": ours, "loop": partial(contender.loop, model, some)}
    spent = bench.best_of(runs, runs=5, limit=15.0, warm=bench.device == "cpu")  # seconds each: nothing to warm there
    found, peak = bench.peak(ours)
    pairs, timed = len(given.images) * len(given.lengths), len(some.images) * len(some.lengths)
    part = given.some(4, 6)
    known = contender.loop(deepcopy(model).double(), part.to(torch.float64))
    note = f"loop timed on {len(some.images):,} × {len(some.lengths):,}" if timed < pairs else ""
    return Row(
        name="",
        shape=given.shape,
        seconds=spent["ours"],
        official_seconds=spent["loop"] * pairs / timed,
        difference=largest_difference(part_of(found, part), known),
        peak_bytes=peak,
        targets=targets,
        note=note,
    )


def linked(given: Problem) -> Problem:
    """Every word depends on the one before it: a graph for GSMN."""
    there = given.texts.mask
    near = torch.eye(there.shape[1], device=there.device)
    near = near + near.roll(1, dims=1).triu() + near.roll(-1, dims=1).tril()
    links = near.bool() & there[:, :, None] & there[:, None]
    return replace(given, texts=replace(given.texts, links=links))
