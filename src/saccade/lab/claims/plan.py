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

from saccade.core.config import load_table, to_dict
from saccade.core.errors import SaccadeError, did_you_mean
from saccade.data.registry import share_pictures
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
CAME_LATER: Mapping[str, Mapping[str, Any]] = {  # settings that say what was so before there were such settings
    "task": {
        "hardest": 1,
        "ways": "both",
        "eval_pictures": 0,
        "among": "given",
        "teacher_negatives": 2,
        "repeated_kinds": [],
        "repeats": 4,
        "repeat_after": 0,
    },
    "trainer": {"accumulate": 1},
    "data": {"train_limit": None, "redundancy": 0.5},
    "model": {"initialiser": "pytorch", "region_length": 1.0},
}


@dataclass(frozen=True)
class DataDefaults:
    """What every run on a data set has in common."""

    name: str
    splits: Sequence[str]
    settings: Sequence[str] = ()
    tasks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # further settings, and a note, of some tasks,
    # or of a system that shares none of its task's
    systems: Mapping[str, Sequence[str]] = field(default_factory=dict)  # further settings of some systems
    extractors: Mapping[str, Mapping[str, Sequence[str]]] = field(default_factory=dict)  # further settings by task
    named_only: bool = False  # only for claims that name it
    rates: Sequence[float] = (1.0,)  # learning rates that every variant is tried at, times that of its settings
    note: str = ""

    def of(self, system: str, extractor: str | None) -> list[str]:
        """The settings of every run of a system on this data set."""
        name = task_of(system).name
        task = self.tasks.get(system, self.tasks.get(name, {}))
        seen = [f"extractor={extractor}", *self.extractors.get(extractor, {}).get(name, ())] if extractor else ()
        common = (*self.settings, *task.get("settings", ()), *seen, *self.systems.get(system, ()))
        return [f"data={self.name}", *common]

    def note_for(self, system: str) -> str:
        """What a reader should know of the runs of a system here."""
        notes = (self.note, self.tasks.get(system, self.tasks.get(task_of(system).name, {})).get("note"))
        return "; ".join(note for note in notes if note)


@cache
def data_defaults() -> Mapping[str, DataDefaults]:
    """The data sets that claims are measured on, in the order of `defaults.yaml`."""
    return {name: DataDefaults(name, **given) for name, given in load_table(DEFAULTS).items()}


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
    extractors: tuple[str, ...] = ()  # of photos; none: the first of the data set's
    rates: tuple[float, ...] = ()  # learning rates to try, times that of the settings; none: the data set's

    def __post_init__(self) -> None:
        check_data(self.data, "claims are not measured on")
        if not all(rate > 0 for rate in self.rates):
            raise SaccadeError("--rate must be more than zero")
        if self.seeds < 1:
            raise SaccadeError(f"--seeds must be at least 1, not {self.seeds}")


@dataclass(frozen=True)
class Run:
    """One training: its settings, its folder below the runs, the splits to measure, and whether to keep tables."""

    name: str  # the folder: world/scan-base-ab12cd34-s0
    config: RunConfig
    splits: tuple[str, ...]
    tables: bool = False  # an ensemble needs the similarities themselves
    task: str | None = None  # by which it is measured, if not its own
    before: Run | None = None  # whose model it starts from

    @property
    def evaluator(self) -> Evaluator[Any, Any]:
        return evaluator_for(self.config.system, self.task)

    @property
    def seed(self) -> int:
        return self.config.trainer.seed

    @property
    def cap(self) -> int:
        """Steps, or if those are not given epochs, after which it ends though it may still rise."""
        return self.config.trainer.steps or self.config.trainer.epochs


@dataclass(frozen=True)
class Side:
    """One side of a comparison: trained at each learning rate with seed 0, then with all seeds at the best of them."""

    by_rate: Mapping[float, tuple[Run, ...]]  # a run for each seed

    @property
    def search(self) -> tuple[Run, ...]:
        """One training for each learning rate: the held-out part chooses between them."""
        return tuple(runs[0] for runs in self.by_rate.values())


def data_of(claim: Claim, names: Sequence[str], extractors: Sequence[str] = ()) -> list[ClaimData]:
    """The data sets among `names` that a claim is measured on, photos with each extractor (if none, the claim's own, or
    else the first)."""
    every = [ClaimData(name) for name in names if not data_defaults()[name].named_only]
    parts = tuple(every) if claim.data is None else claim.data
    check_data([part.name for part in parts], f"claim {claim.name}: data names")
    found = []
    for part in (part for part in parts if part.name in names):
        known = data_defaults()[part.name].extractors
        own = claim.own_extractor(part.name)
        named = () if own is None else (own,)
        asked = named if claim.compares_extractors else extractors
        found += [replace(part, extractor=one) for one in asked or list(known)[:1]] if known else [part]
    return found


def splits_of(data: ClaimData) -> tuple[str, ...]:
    return data.splits if data.splits is not None else tuple(data_defaults()[data.name].splits)


_config = cache(run_config)  # seeds, rates and claims share settings, and reading them takes a twentieth of a second


def run_of(claim: Claim, variant: Variant, data: ClaimData, seed: int, request: Request, rate: float = 1.0) -> Run:
    """The training behind a variant that has one, at `rate` times the learning rate of its settings."""
    defaults = data_defaults()[data.name]
    shared = defaults.of(variant.system, data.extractor or next(iter(defaults.extractors), None))
    if request.root is not None and not data.name.startswith("world"):
        shared.append(f"root={request.root}")
    before = None
    if variant.before:
        first = Variant(variant.label, variant.before[0], variant.before[1:])
        before = replace(
            run_of(claim, first, data, seed, replace(request, words=())), splits=(), tables=False, task=None
        )
    try:
        config = _config(variant.system, (*shared, *data.settings, *variant.words(data.name), *request.words))
        base = _config(variant.system, (*shared, *request.words))
    except SaccadeError as error:
        raise SaccadeError(f'claim {claim.name}, variant "{variant.label}" on {data.name}: {error}') from error
    for split in splits_of(data):
        if share_pictures(config.data.train_split, split):
            raise SaccadeError(
                f"claim {claim.name} on {data.name} is judged by {split}, and train_split={config.data.train_split} "
                "would learn from it: give another train_split"
            )
    accelerator, learning_rate = request.device.partition(":")[0], float(f"{config.trainer.learning_rate * rate:.6g}")
    trainer = replace(config.trainer, seed=seed, accelerator=accelerator, learning_rate=learning_rate)
    config = replace(config, trainer=trainer)
    settings = settings_that_matter(config)
    changes = _changes(settings, settings_that_matter(base))
    if before is not None:
        settings, changes = {**settings, "before": before.name}, ["after", *changes]
    measured = f"-{claim.task}" if claim.task else ""
    name = f"{variant.system}-{'-'.join(changes) or 'base'}-{digest(settings)}{measured}-s{seed}"
    tables = any(variant.label in other.ensemble for other in claim.variants)
    return Run(f"{data.name}/{name}", config, splits_of(data), tables, claim.task, before)


def side_of(claim: Claim, variant: Variant, data: ClaimData, request: Request) -> Side:
    """The trainings behind a variant that has some."""
    rates = request.rates or tuple(data_defaults()[data.name].rates)
    seeds = range(request.seeds)
    return Side({rate: tuple(run_of(claim, variant, data, s, request, rate) for s in seeds) for rate in rates})


def plan(claims: Sequence[Claim], request: Request) -> list[Side]:
    """Every side that the claims need, each once, with every split and table that any of them wants."""
    sides: dict[str, Side] = {}
    for name, claim in product(request.data, claims):
        for data, variant in product(data_of(claim, [name], request.extractors), claim.variants):
            if variant.trained:
                side = side_of(claim, variant, data, request)
                key = side.search[0].name
                sides[key] = _both(sides[key], side) if key in sides else side
    return list(sides.values())


def _both(one: Side, other: Side) -> Side:
    """The same trainings, measured on all that either wants."""
    return Side(
        {
            rate: tuple(
                replace(run, splits=tuple(dict.fromkeys((*run.splits, *same.splits))), tables=run.tables or same.tables)
                for run, same in zip(runs, other.by_rate[rate], strict=True)
            )
            for rate, runs in one.by_rate.items()
        }
    )


def settings_that_matter(config: RunConfig) -> dict[str, Any]:
    """The settings, section by section; runs that differ in none of them differ by chance alone."""
    settings = to_dict(config)
    for section, keys in NO_MATTER.items():
        settings[section] = {key: value for key, value in settings[section].items() if key not in keys}
    for section, later in CAME_LATER.items():
        plain = [key for key, value in later.items() if settings[section].get(key) == value]
        settings[section] = {key: value for key, value in settings[section].items() if key not in plain}
    if config.trainer.patience and config.trainer.schedule in ("constant", "step"):  # else the length shapes the rate
        for key in ("epochs", "steps"):  # a run that ends when flat is the same under any cap
            del settings["trainer"][key]
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
