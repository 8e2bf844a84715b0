"""Training one run and measuring it; what was measured is kept, so that reports need no model.

A run folder that holds `measured.json` is finished. Everything else in it serves to go on with a training that was
stopped, or to measure again.
"""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from saccade.core.errors import SaccadeError, explain_os_errors
from saccade.core.files import atomic_file, read_json, write_json
from saccade.lab.claims.plan import Run
from saccade.models import Model, load_model
from saccade.tasks.evaluator import Arrays, Evaluator, Scores, SplitForModels
from saccade.training.run import train_run

MEASURED = "measured.json"
FAILURE = "failure.json"
split_for_models = lru_cache(maxsize=8)(SplitForModels)  # a worker meets the same few again and again


@dataclass(frozen=True)
class Measured:
    """What is known of a finished run."""

    facts: Mapping[str, Any]  # seconds, device, versions
    kept: Mapping[str, Arrays]  # by split
    scores: Mapping[str, Scores]  # the same, read


def is_finished(run: Run, runs: Path) -> bool:
    """Whether all that the claims want of this run is there."""
    folder, evaluator = runs / run.name, run.evaluator
    if not (folder / MEASURED).exists() or not (folder / evaluator.file).exists():
        return False
    known = read_json(folder / MEASURED).get("splits", {})
    if not all(split in known for split in run.splits):
        return False
    return not run.tables or all(evaluator.tables(folder, split).exists() for split in run.splits)


def save_measured(
    folder: Path, evaluator: Evaluator[Any, Any], facts: Mapping[str, Any], kept: Mapping[str, Arrays]
) -> None:
    arrays: dict[str, Any] = {
        f"{split}/{name}": values for split, arrays in kept.items() for name, values in arrays.items()
    }
    with atomic_file(folder / evaluator.file) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, **arrays)
    found = {split: evaluator.scores(arrays) for split, arrays in kept.items()}
    splits = {split: {"figures": dict(one.figures), "chance": dict(one.chance)} for split, one in found.items()}
    write_json(folder / MEASURED, {**facts, "splits": splits})


def load_measured(folder: Path, evaluator: Evaluator[Any, Any]) -> Measured | None:
    """What was measured of a run, or None if it is not finished."""
    path = folder / evaluator.file
    if not (folder / MEASURED).exists() or not path.exists():
        return None
    kept: dict[str, dict[str, np.ndarray]] = {}
    try:
        with explain_os_errors(path, "read"), np.load(path, allow_pickle=False) as arrays:
            for key in arrays.files:
                split, _, name = key.partition("/")
                kept.setdefault(split, {})[name] = arrays[key]
        scores = {split: evaluator.scores(arrays) for split, arrays in kept.items()}
    except (ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise SaccadeError(f"{path} is damaged: remove {folder}, and it is trained again") from error
    facts = {key: value for key, value in read_json(folder / MEASURED).items() if key != "splits"}
    return Measured(facts, kept, scores)


def train_and_measure(run: Run, runs: Path, lean: bool) -> None:
    """Train a run, or go on with it, and measure it. With `lean`, its weights are not kept."""
    folder, evaluator = runs / run.name, run.evaluator
    known = load_measured(folder, evaluator)
    kept: dict[str, Arrays] = {}
    if known is not None and (folder / "best").exists():  # trained: another split, or a table, is wanted
        facts, kept = dict(known.facts), dict(known.kept)
    else:
        result = train_run(run.config, folder, resume=True, console=Console(quiet=True))
        told = ("device", "saccade", "torch", "python")
        surroundings = {key: value for key, value in read_json(folder / "environment.json").items() if key in told}
        facts = {"run": run.name, "seconds": round(result.seconds, 1), "best_step": result.best_step, **surroundings}
    model: Model = load_model(folder).to(run.config.trainer.accelerator)
    facts["parameters"] = model.parameter_count()
    for split in run.splits:
        data = split_for_models(run.config.data, split).regions_for(model, folder)
        kept[split] = evaluator.measure(model, data, run.config.task, folder, run.tables)
    save_measured(folder, evaluator, facts, kept)
    (folder / FAILURE).unlink(missing_ok=True)
    (folder / "last.ckpt").unlink(missing_ok=True)  # nobody will go on from here
    for name in ("last", "tensorboard", *(("best",) if lean else ())):
        shutil.rmtree(folder / name, ignore_errors=True)
