"""Claims on toy variants, made-up scores, and workers that only pretend: what the tests of the lab share."""

from __future__ import annotations

import os
import time
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from saccade.core.errors import SaccadeError
from saccade.lab.claims.claim import Claim, read_claim
from saccade.lab.claims.plan import Request, Run, plan
from saccade.lab.claims.run import save_measured
from saccade.tasks.evaluator import PART, Arrays
from saccade.tasks.matching.evaluate import QueryRanks, query_ranks, save_table

IMAGES, EACH = 40, 3


def claim_values(**changes: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "title": "Attention or the best region",
        "system": "scan",
        "paper": {"title": "Stacked Cross Attention", "venue": "ECCV 2018"},
        "statement": "Attention beats the best region.",
        "variants": {
            "attention": {},
            "Sum-Max": {"settings": ["attention=max", "pool=sum"]},
            "both": {"ensemble": ["attention", "Sum-Max"]},
        },
        "expect": ["attention > Sum-Max"],
        "data": {"world": {"splits": ["test"]}},
    }
    return {**values, **changes}


def toy_claim(**changes: Any) -> Claim:
    return read_claim("toy", claim_values(**changes), "toy.yaml")


def caption_claim(**changes: Any) -> Claim:
    """The same on captioners."""
    values = {
        "system": "adaptive",
        "variants": {"sentinel": {}, "none": {"settings": ["sentinel=false"]}},
        "expect": ["sentinel > none"],
    }
    return toy_claim(**{**values, **changes})


def toy_table(quality: float, seed: int) -> np.ndarray:
    """Similarities in which the right pairs stand out by `quality`."""
    noise = np.random.default_rng(seed).normal(size=(IMAGES, IMAGES * EACH))
    return np.asarray(noise + quality * (owners()[None] == np.arange(IMAGES)[:, None]))


def owners() -> np.ndarray:
    return np.repeat(np.arange(IMAGES), EACH)


def toy_ranks(quality: float, seed: int) -> QueryRanks:
    return query_ranks(toy_table(quality, seed), owners())


def toy_captions(quality: float, seed: int) -> dict[str, np.ndarray]:
    """What a captioner of this quality leaves behind."""
    each = quality + np.random.default_rng(seed).normal(size=IMAGES)
    kept = {name: np.asarray(10 * quality) for name in ("bleu1", "bleu4", "meteor", "rouge_l")}
    kept |= {"cider_d": each.sum(), PART + "cider_d": each}
    return kept | {"pictures": np.asarray(IMAGES), "texts": np.asarray(IMAGES * EACH)}


def runs_for(claim: Claim, request: Request) -> list[Run]:
    """All its runs, the first seeds first."""
    return sorted(
        (run for side in plan([claim], request) for some in side.by_rate.values() for run in some),
        key=attrgetter("seed"),
    )


def finish(run: Run, runs: Path, quality: float, flat: bool = True) -> None:
    """Leave behind what a finished run of this quality would."""
    folder = runs / run.name
    folder.mkdir(parents=True)
    facts = {"run": run.name, "seconds": 2.0, "device": "cpu (toy)", "torch": "2", "flat": flat, "cap": run.cap}
    facts |= {"steps": 40, "best_step": 30, "selection": run.evaluator.metric}
    facts |= {"held_out": 100 * quality, "curve": [(10 * n, 100 * quality - (n - 3) ** 2) for n in range(1, 5)]}
    matcher = run.evaluator.metric == "rsum"
    kept: Arrays = vars(toy_ranks(quality, run.seed)) if matcher else toy_captions(quality, run.seed)
    save_measured(folder, run.evaluator, facts, dict.fromkeys(run.splits, kept))
    if run.tables:
        for split in run.splits:
            save_table(run.evaluator.tables(folder, split), toy_table(quality, run.seed))


def pretend(run: Run, runs: Path, lean: bool) -> None:
    """A worker's work: the first seed's Sum-Max kills its process, the second's meets a bug, the third's is refused."""
    if "max" in run.name:
        if run.seed == 0:
            os._exit(9)
        if run.seed == 1:
            raise ValueError("first line\nsecond line")
        raise SaccadeError("the toy is broken")
    finish(run, runs, 2.0)


def find_memory_late(run: Run, runs: Path, lean: bool) -> None:
    """With the first seed, attention never finds memory, and Sum-Max at its second try."""
    if run.seed == 0:
        if "max" not in run.name:
            raise RuntimeError("CUDA out of memory, always")
        if not (runs / "tried").exists():
            (runs / "tried").touch()
            raise RuntimeError("CUDA out of memory")
    finish(run, runs, 2.0)


def sleep(job: str) -> None:
    """Work that takes longer than any test waits."""
    time.sleep(600)
