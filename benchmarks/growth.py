"""How time grows while pictures, captions, regions or dimensions double."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from benchmarks.bench import Bench, Case
from benchmarks.matchers import CONTENDERS, linked
from benchmarks.problems import FORMS, Problem, problem, scan
from benchmarks.rows import Growth, Target

AXES = {"pictures": "images", "captions": "texts", "regions": "regions", "dimensions": "dim"}
LINEAR = (Target("exponent", "≤", 1.1),)
MATCHERS = ("IMRAM, 3 steps of the words", "GSMN", "CAMP")


def cpu(bench: Bench) -> Iterator[Case]:
    sizes = {"images": 64, "texts": 160, "regions": 36, "dim": 512}
    yield from _cases(bench, sizes, {"images": 12, "texts": 24, "regions": 36, "dim": 256}, torch.float32, 256)


def gpu(bench: Bench) -> Iterator[Case]:
    sizes = {"images": 500, "texts": 2500, "regions": 36, "dim": 1024}
    yield from _cases(bench, sizes, {"images": 125, "texts": 125, "regions": 36, "dim": 1024}, torch.bfloat16, 2048)


def _cases(
    bench: Bench, scan_sizes: dict[str, int], model_sizes: dict[str, int], dtype: torch.dtype, budget_mb: int
) -> Iterator[Case]:
    for direction in FORMS:
        for axis in AXES:
            run = partial(of_scan, bench, direction, axis, scan_sizes, dtype, budget_mb << 20)
            yield Case(f"SCAN {direction}", run, axis)
    for name in MATCHERS:
        for axis in ("pictures", "captions"):
            yield Case(name.split(",")[0], partial(of_matcher, bench, name, axis, model_sizes, dtype, budget_mb), axis)


@torch.no_grad()
def of_scan(bench: Bench, direction: str, axis: str, sizes: dict[str, int], dtype: torch.dtype, budget: int) -> Growth:
    """From half of these sizes to four times as much along one of them."""

    def run(given: Problem) -> Tensor:
        return scan(given, direction, budget)

    found = [(size, given.to(dtype)) for size, given in _doubled(bench, axis, sizes)]
    spent = bench.best_of({str(size): partial(run, given) for size, given in found})
    return _growth(bench, axis, sizes, spent)


@torch.no_grad()
def of_matcher(bench: Bench, name: str, axis: str, sizes: dict[str, int], dtype: torch.dtype, budget_mb: int) -> Growth:
    dim = bench.size(sizes["dim"], 32)
    torch.manual_seed(0)
    model = CONTENDERS[name].make(dim, budget_mb).to(bench.device).eval()

    def run(given: Problem) -> Tensor:
        with torch.autocast(bench.device, torch.bfloat16, enabled=dtype == torch.bfloat16):
            return model.similarity(given.images, given.texts)

    found = {str(size): partial(run, linked(given)) for size, given in _doubled(bench, axis, sizes)}
    return _growth(bench, axis, sizes, bench.best_of(found))


def _doubled(bench: Bench, axis: str, sizes: dict[str, int]) -> Iterator[tuple[int, Problem]]:
    base = _tiny(sizes) if bench.quick else sizes
    for factor in (1, 2) if bench.quick else (1, 2, 4, 8):
        size = base[AXES[axis]] * factor // (1 if bench.quick else 2)
        yield size, problem(bench.device, **{**base, AXES[axis]: size})


def _tiny(sizes: dict[str, int]) -> dict[str, int]:
    return {**sizes, "images": 4, "texts": 6, "dim": 32}


def _growth(bench: Bench, axis: str, sizes: dict[str, int], spent: dict[str, float]) -> Growth:
    base = _tiny(sizes) if bench.quick else sizes
    stays = ", ".join(f"{base[key]:,} {name}" for name, key in AXES.items() if name != axis)
    targets = LINEAR if axis in ("pictures", "captions") else ()
    return Growth("", axis, tuple(map(int, spent)), tuple(spent.values()), stays, targets)
