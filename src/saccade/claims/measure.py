"""Training one run and measuring it: recalls and the rank of every query, kept so that reports need no model.

A run folder that holds `measured.json` is finished. Everything else in it serves to go on with a training that was
stopped, or to measure again.
"""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from rich.console import Console

from saccade.claims.plan import Run
from saccade.data import DataConfig
from saccade.errors import SaccadeError, explain_os_errors
from saccade.files import atomic_file, read_json, write_json
from saccade.metrics import chance, ranks, summary
from saccade.models import Matcher, load_model
from saccade.tasks import SplitForModels, similarity_table
from saccade.training.run import train_run

MEASURED = "measured.json"
RANKS = "ranks.npz"
FAILURE = "failure.json"


@dataclass(frozen=True)
class QueryRanks:
    """Where the first right answer of every query of a split stands (0: on top)."""

    image_to_text: Int[np.ndarray, " image"]
    text_to_image: Int[np.ndarray, " text"]
    image_of_text: Int[np.ndarray, " text"]

    def recalls(self) -> dict[str, float]:
        """The same figures as `saccade.metrics.recall`."""
        report = {f"i2t_{k}": v for k, v in summary(self.image_to_text).items()}
        report |= {f"t2i_{k}": v for k, v in summary(self.text_to_image).items()}
        return report | {"rsum": sum(value for key, value in report.items() if "_r" in key)}

    def chance(self) -> dict[str, float]:
        return chance(self.image_of_text, len(self.image_to_text))


def query_ranks(table: Float[np.ndarray, "image text"], image_of_text: Int[np.ndarray, " text"]) -> QueryRanks:
    found = ranks(table, image_of_text)
    return QueryRanks(found.image_to_text, found.text_to_image, image_of_text)


@dataclass(frozen=True)
class Measured:
    """What is known of a finished run."""

    facts: Mapping[str, Any]  # seconds, device, versions
    ranks: Mapping[str, QueryRanks]  # by split


def table_file(folder: Path, split: str) -> Path:
    return folder / f"similarity-{split}.npy"


def is_finished(run: Run, runs: Path) -> bool:
    """Whether all that the claims want of this run is there."""
    folder = runs / run.name
    if not (folder / MEASURED).exists() or not (folder / RANKS).exists():
        return False
    known = read_json(folder / MEASURED).get("splits", {})
    tables = run.splits if run.tables else ()
    return all(split in known for split in run.splits) and all(table_file(folder, split).exists() for split in tables)


def save_measured(folder: Path, facts: Mapping[str, Any], found: Mapping[str, QueryRanks]) -> None:
    arrays: dict[str, Any] = {
        f"{split}/{name}": np.asarray(values, dtype=np.int32)
        for split, ranks_of_split in found.items()
        for name, values in vars(ranks_of_split).items()
    }
    with atomic_file(folder / RANKS) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, **arrays)
    splits = {split: {"recalls": one.recalls(), "chance": one.chance()} for split, one in found.items()}
    write_json(folder / MEASURED, {**facts, "splits": splits})


def load_measured(folder: Path) -> Measured | None:
    """What was measured of a run, or None if it is not finished."""
    if not (folder / MEASURED).exists() or not (folder / RANKS).exists():
        return None
    path = folder / RANKS
    try:
        with explain_os_errors(path, "read"), np.load(path, allow_pickle=False) as arrays:
            splits = dict.fromkeys(key.partition("/")[0] for key in arrays.files)
            names = ("image_to_text", "text_to_image", "image_of_text")
            found = {split: QueryRanks(*(arrays[f"{split}/{name}"] for name in names)) for split in splits}
    except (ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise SaccadeError(f"{path} is damaged: remove {folder}, and it is trained again") from error
    facts = {key: value for key, value in read_json(folder / MEASURED).items() if key != "splits"}
    return Measured(facts, found)


def save_table(folder: Path, split: str, table: Float[np.ndarray, "image text"]) -> None:
    """Similarities brought to zero mean and unit spread, which is what an ensemble averages, in half precision."""
    standard = (table - table.mean()) / max(float(table.std()), 1e-12)
    with atomic_file(table_file(folder, split)) as temporary, temporary.open("wb") as file:
        np.save(file, standard.astype(np.float16))


def load_table(folder: Path, split: str) -> Float[np.ndarray, "image text"]:
    path = table_file(folder, split)
    try:
        with explain_os_errors(path, "read"):
            return np.asarray(np.load(path, allow_pickle=False), dtype=np.float32)
    except (ValueError, EOFError) as error:
        raise SaccadeError(f"{path} is damaged: remove it, and the run is measured again") from error


def carry_out(
    run: Run, runs: Path, lean: bool, split_of: Callable[[DataConfig, str], SplitForModels] = SplitForModels
) -> None:
    """Train a run, or go on with it, and measure it. With `lean`, its weights are not kept."""
    folder = runs / run.name
    known = load_measured(folder)
    found: dict[str, QueryRanks] = {}
    if known is not None and (folder / "best").exists():  # trained: another split, or a table, is wanted
        facts, found = dict(known.facts), dict(known.ranks)
    else:
        result = train_run(run.config, folder, resume=True, console=Console(quiet=True))
        kept = ("device", "saccade", "torch", "python")
        surroundings = {key: value for key, value in read_json(folder / "environment.json").items() if key in kept}
        facts = {"run": run.name, "seconds": round(result.seconds, 1), "best_step": result.best_step, **surroundings}
    model = load_model(folder, Matcher).to(run.config.trainer.accelerator)
    facts["parameters"] = model.parameter_count()
    for split in run.splits:
        data = split_of(run.config.data, split).seen_by(model, folder)
        table = similarity_table(model, data)
        found[split] = query_ranks(table, data.image_of_text)
        if run.tables:
            save_table(folder, split, table)
    save_measured(folder, facts, found)
    (folder / FAILURE).unlink(missing_ok=True)
    (folder / "last.ckpt").unlink(missing_ok=True)  # nobody will go on from here
    for name in ("last", "tensorboard", *(("best",) if lean else ())):
        shutil.rmtree(folder / name, ignore_errors=True)
