"""The plan: which trainings the claims need, each of them once, however many claims share it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

from saccade.core.config import load_yaml, to_dict
from saccade.core.errors import SaccadeError, did_you_mean
from saccade.lab.claims.claim import Claim, ClaimData, Variant, evaluator_for
from saccade.tasks import task_of
from saccade.tasks.evaluator import Evaluator
from saccade.training.run import RunConfig, run_config

DEFAULTS = Path(__file__).parent / "defaults.yaml"
NO_MATTER = {  # settings that say where and how a run is carried out, not what comes out
    "data": {"root", "test_split", "in_memory"},
    "task": {"eval_batch"},
    "trainer": {
        *("accelerator", "devices", "nodes", "strategy", "seed"),
        *("checkpoint_every", "log_every", "prefetch", "cuda_graphs"),
    },
}


@dataclass(frozen=True)
class DataDefaults:
    """What every run on a data set has in common."""

    name: str
    splits: Sequence[str]
    settings: Sequence[str] = ()
    tasks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # further settings, and a note, of some tasks
    systems: Mapping[str, Sequence[str]] = field(default_factory=dict)  # further settings of some systems
    note: str = ""

    def of(self, system: str) -> list[str]:
        """The settings of every run of a system on this data set."""
        task = self.tasks.get(task_of(system).name, {})
        return [f"data={self.name}", *self.settings, *task.get("settings", ()), *self.systems.get(system, ())]

    def note_for(self, system: str) -> str:
        """What a reader should know of the runs of a system here."""
        notes = (self.note, self.tasks.get(task_of(system).name, {}).get("note"))
        return "; ".join(note for note in notes if note)


@cache
def data_defaults() -> Mapping[str, DataDefaults]:
    """The data sets that claims are measured on, in the order of `defaults.yaml`."""
    return {name: DataDefaults(name, **given) for name, given in load_yaml(DEFAULTS).items()}


def check_data(names: Sequence[str], problem: str) -> None:
    for name in names:
        if name not in data_defaults():
            near = f"{did_you_mean(name, data_defaults())} (there are: {', '.join(data_defaults())})"
            raise SaccadeError(f'{problem} "{name}"{near}')


@dataclass(frozen=True)
class Request:
    """What the user wants beside the claims themselves."""

    data: tuple[str, ...] = ("world",)
    seeds: int = 3
    words: tuple[str, ...] = ()  # key=value words for every run
    root: Path | None = None  # of the photos
    device: str = "cpu"

    def __post_init__(self) -> None:
        check_data(self.data, "claims are not measured on")
        if self.seeds < 1:
            raise SaccadeError(f"--seeds must be at least 1, not {self.seeds}")


@dataclass(frozen=True)
class Run:
    """One training: its settings, its folder below the runs, the splits to measure, and whether to keep tables."""

    name: str  # the folder: world/scan-base-ab12cd34-s0
    config: RunConfig
    splits: tuple[str, ...]
    tables: bool = False  # an ensemble needs the similarities themselves

    @property
    def evaluator(self) -> Evaluator[Any, Any]:
        return evaluator_for(self.config.system)

    @property
    def seed(self) -> int:
        return self.config.trainer.seed


def data_of(claim: Claim, names: Sequence[str]) -> list[ClaimData]:
    """The data sets among `names` that a claim is measured on."""
    if claim.data is None:
        return [ClaimData(name) for name in names]
    check_data([part.name for part in claim.data], f"claim {claim.name}: data names")
    return [part for part in claim.data if part.name in names]


def splits_of(data: ClaimData) -> tuple[str, ...]:
    return data.splits if data.splits is not None else tuple(data_defaults()[data.name].splits)


def run_of(claim: Claim, variant: Variant, data: ClaimData, seed: int, request: Request) -> Run:
    """The training behind a variant that has one."""
    shared = data_defaults()[data.name].of(variant.system)
    if request.root is not None and data.name != "world":
        shared.append(f"root={request.root}")
    try:
        config = run_config(variant.system, [*shared, *data.settings, *variant.words(data.name), *request.words])
        base = run_config(variant.system, [*shared, *request.words])
    except SaccadeError as error:
        raise SaccadeError(f'claim {claim.name}, variant "{variant.label}" on {data.name}: {error}') from error
    trainer = replace(config.trainer, seed=seed, accelerator=request.device.partition(":")[0])
    settings = settings_that_matter(config)
    changes = _changes(settings, settings_that_matter(base))
    name = f"{variant.system}-{'-'.join(changes) or 'base'}-{digest(settings)}-s{seed}"
    tables = any(variant.label in other.ensemble for other in claim.variants)
    return Run(f"{data.name}/{name}", replace(config, trainer=trainer), splits_of(data), tables)


def plan(claims: Sequence[Claim], request: Request) -> list[Run]:
    """Every training that the claims need, each once; first seeds first, so that an early stop leaves fair tables."""
    runs: dict[str, Run] = {}
    for seed, name, claim in product(range(request.seeds), request.data, claims):
        for data, variant in product(data_of(claim, [name]), claim.variants):
            if variant.trained:
                run = run_of(claim, variant, data, seed, request)
                known = runs.setdefault(run.name, run)  # wanted twice: every split that either wants
                splits = tuple(dict.fromkeys((*known.splits, *run.splits)))
                runs[run.name] = replace(known, splits=splits, tables=known.tables or run.tables)
    return list(runs.values())


def settings_that_matter(config: RunConfig) -> dict[str, Any]:
    """The settings, section by section; runs that differ in none of them differ by chance alone."""
    settings = to_dict(config)
    for section, keys in NO_MATTER.items():
        settings[section] = {key: value for key, value in settings[section].items() if key not in keys}
    return settings


def digest(settings: Mapping[str, Any]) -> str:
    """Eight letters that differ where settings do."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode()).hexdigest()[:8]


def _changes(settings: Mapping[str, Any], base: Mapping[str, Any]) -> list[str]:
    """What sets a run apart from its system's plain run, fit for a folder's name: attention_max, pool_sum."""
    found: list[str] = []
    for key, value in settings.items():
        if isinstance(value, Mapping) and isinstance(base.get(key), Mapping):
            found += _changes(value, base[key])
        elif value != base.get(key):
            plain = "".join(c if c.isalnum() or c in "._" else "_" for c in f"{key}_{value}")
            found.append(plain[:40].lower())
    return found
