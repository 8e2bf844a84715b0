"""Who takes part, and how they do: figures and costs of each contender, and what their ensembles add."""

from __future__ import annotations

import os
import platform
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from saccade.core.config import as_word, dotted
from saccade.core.errors import SaccadeError
from saccade.core.progress import Tell
from saccade.data import DataConfig
from saccade.lab.claims.plan import settings_that_matter
from saccade.models import Model, find_model, load_model
from saccade.tasks import find_task, task_names
from saccade.tasks.base import TaskSpec
from saccade.tasks.evaluator import Benchmark, Costs, SplitForModels, joined
from saccade.training.run import CONFIG, load_run_config, run_config


@dataclass(frozen=True)
class Contender:
    """One row of the table."""

    system: str
    variant: str  # what sets it apart from the system's recipe (`pool=mean`), or the name it was given; may be empty
    folders: tuple[str, ...]  # one a seed

    @property
    def name(self) -> str:
        return f"{self.system} ({self.variant})" if self.variant else self.system


@dataclass(frozen=True)
class Entered:
    """Who takes part, on which data, and how many runs below the folders do not, since theirs are other data."""

    contenders: tuple[Contender, ...]
    data: DataConfig
    left_out: int


def choose_contenders(
    folders: Sequence[str], named: Mapping[str, Sequence[str]], below: Sequence[Path], data_name: str | None
) -> Entered:
    """Models by their folders, groups with a name of their own, and every finished run below some folders.

    Raises: SaccadeError if a task has no leaderboard, if the models are of several tasks, if those that were named
    learned from different data and `data_name` does not say which to take, or if there is none at all.
    """
    chosen = [*folders, *(member for members in named.values() for member in members)]
    specs = {folder: task_on_board(folder) for folder in folders}
    for name, members in named.items():
        for folder in members:
            try:
                specs[folder] = task_on_board(folder)
            except SaccadeError as error:
                raise SaccadeError(f"{name}={','.join(members)} sets nothing of the data, and {error}") from error
    for folder, spec in specs.items():
        if spec is not specs[chosen[0]]:
            raise SaccadeError(
                f"{chosen[0]} is a {specs[chosen[0]].noun} and {folder} a {spec.noun}: no table can hold both"
            )
    data = check_same_data(chosen) if data_name is None else None
    found = [run for folder in below for run in finished_runs(folder)]
    tasks = [task_on_board(run).name for run in found]
    task = specs[chosen[0]].name if chosen else Counter(tasks).most_common(1)[0][0] if tasks else None
    found = [run for run, its in zip(found, tasks, strict=True) if its == task]
    kept, shared = share_data(found, data_name or (data.name if data else None))
    if not kept and not chosen:
        what = f" on {data_name}" if data_name else ""
        raise SaccadeError(
            f"there is no finished run of a {' or '.join(_tasks_on_board())} model{what} below "
            f"{', '.join(map(str, below)) or 'runs'}: train one (`saccade train scan data=world`), or name run or "
            "model folders"
        )
    contenders = group_runs([*folders, *kept], named)
    return Entered(tuple(contenders), data or shared or DataConfig(), len(found) - len(kept))


def task_on_board(folder: Path | str) -> TaskSpec[Any, Any]:
    """The task of a model. Raises: SaccadeError if there is no model, or its task has no leaderboard."""
    spec = find_task(find_model(folder, Model)[1].task)
    if spec.benchmark is None:
        raise SaccadeError(
            f"{folder} is a {spec.noun}, and there is no leaderboard of {spec.noun}s, only of "
            f"{' and '.join(_tasks_on_board())} models: `saccade eval` compares them"
        )
    return spec


def _tasks_on_board() -> list[str]:
    return [name for name in task_names() if find_task(name).benchmark is not None]


def finished_runs(folder: Path | str) -> list[str]:
    """Every run below a folder that was trained to its end, kept its best model, and whose task has a leaderboard."""
    if not Path(folder).is_dir():
        raise SaccadeError(f"{folder} is not a folder of runs")
    found = []
    for path in sorted(Path(folder).rglob(CONFIG)):
        run = path.parent
        trained = (run / "last").exists() or not (run / "last.ckpt").exists()
        if trained and (run / "best").is_dir():
            with suppress(SaccadeError):
                task_on_board(run)
                found.append(str(run))
    return found


def share_data(runs: Sequence[str], name: str | None) -> tuple[list[str], DataConfig | None]:
    """The runs trained on the same data: those called `name`, else those that most of them were trained on."""
    by_run = {run: load_run_config(run).data for run in runs}
    known = Counter(_data_key(data) for data in by_run.values() if name in (None, data.name))
    if not known:
        return [], None
    key = known.most_common(1)[0][0]
    kept = [run for run in runs if _data_key(by_run[run]) == key]
    return kept, by_run[kept[0]]


def check_same_data(folders: Sequence[str]) -> DataConfig | None:
    """The data of the runs among these folders, which must be the same; models that are no runs do not say theirs."""
    runs = [folder for folder in folders if (Path(folder) / CONFIG).exists()]
    configs = [load_run_config(run).data for run in runs]
    for run, data in zip(runs, configs, strict=True):
        if _data_key(data) != _data_key(configs[0]):
            raise SaccadeError(
                f"{run} was trained on {_describe(data)}, {runs[0]} on {_describe(configs[0])}: give data=… (and "
                "root=…) to compare them all on one data set"
            )
    return configs[0] if configs else None


def _data_key(data: DataConfig) -> DataConfig:
    """What makes data the same for a comparison: not their place, extractor, or how many were trained on."""
    plain = DataConfig()
    return replace(
        data,
        root=None,
        extractor=plain.extractor,
        limit=None,
        train_split=plain.train_split,
        dev_split=plain.dev_split,
        test_split=plain.test_split,
        held_out=0,
    )


def _describe(data: DataConfig) -> str:
    return f"{data.name} (pictures={data.pictures} seed={data.seed})" if data.name == "world" else data.name


def group_runs(folders: Sequence[str], named: Mapping[str, Sequence[str]] | None = None) -> list[Contender]:
    """Runs that differ by their seed alone together, models that are no runs each alone, named groups as given.

    A variant's name gives the settings in which it is not its system's recipe, but none that all its kin share.
    """
    runs = [folder for folder in dict.fromkeys(folders) if (Path(folder) / CONFIG).exists()]
    settings = {run: dotted(settings_that_matter(load_run_config(run))) for run in runs}
    groups: dict[str, list[str]] = {}
    for run in runs:
        groups.setdefault(repr(settings[run]), []).append(run)
    contenders = []
    for members in groups.values():
        own = settings[members[0]]
        kin = [other for other in settings.values() if other["system"] == own["system"]]
        apart = {key: value for key, value in _changes(own).items() if any(s.get(key) != value for s in kin)}
        contenders.append(Contender(str(own["system"]), _words(apart), tuple(members)))
    for folder in dict.fromkeys(folders):
        if folder not in settings:
            contenders.append(Contender(find_model(folder, Model)[1].name, folder, (folder,)))
    for label, given in (named or {}).items():
        systems = dict.fromkeys(find_model(folder, Model)[1].name for folder in given)
        if len(systems) > 1:
            raise SaccadeError(f"{label}={','.join(given)} holds models of several systems ({', '.join(systems)})")
        contenders.append(Contender(next(iter(systems)), label, tuple(dict.fromkeys(given))))
    return contenders


def _changes(settings: Mapping[str, Any]) -> dict[str, Any]:
    """In what a run is not its system's recipe for the data."""
    recipe = dotted(settings_that_matter(run_config(settings["system"], [f"data={settings['data.name']}"])))
    return {key: value for key, value in settings.items() if recipe.get(key) != value}


def _words(changes: Mapping[str, Any]) -> str:
    """As a user would write them: pool=mean bias=true vectors=none."""
    return " ".join(as_word(key.rpartition(".")[2], value) for key, value in changes.items())


ENSEMBLE = "ensemble"  # in place of a system's name


@dataclass(frozen=True)
class BoardRow:
    """A line of the table: one set of figures a seed, and what one model (or one ensemble) costs."""

    system: str
    variant: str
    kind: Literal["single", "ensemble"]
    models: tuple[str, ...]
    figures: tuple[Mapping[str, float], ...]
    cost: Costs

    @property
    def name(self) -> str:
        return f"{self.system}: {self.variant}" if self.variant else self.system

    def mean(self, metric: str) -> float:
        return float(np.mean([one[metric] for one in self.figures]))


@dataclass(frozen=True)
class Board:
    """All rows, the best first, single models before ensembles."""

    task: str
    data: str
    split: str
    images: int
    texts: int
    device: str
    rows: tuple[BoardRow, ...]
    chance: Mapping[str, float]
    chosen_here: bool  # whether this split also chose which epoch's model was kept
    first: str | None = None  # the model whose best cross-encoders put in order

    @property
    def benchmark(self) -> Benchmark[Any, Any]:
        """Raises: SaccadeError if there is no such task, or it has no leaderboard."""
        benchmark = find_task(self.task).benchmark
        if benchmark is None:
            raise SaccadeError(f"there is no leaderboard of {self.task}")
        return benchmark

    @property
    def metric(self) -> str:
        """What the order goes by."""
        return next(iter(self.benchmark.figures))

    def of_kind(self, kind: Literal["single", "ensemble"]) -> list[BoardRow]:
        return [row for row in self.rows if row.kind == kind]


@dataclass(frozen=True)
class MeasuredModel:
    """A contender's models, one a seed, on the split."""

    contender: Contender
    outputs: list[Any]
    costs: list[Costs]
    said: str = ""  # of how they took part


@dataclass(frozen=True)
class First:
    """A model whose best few of each query cross-encoders put in order, by their score and `blend` times its own."""

    folder: str
    count: int = 32
    blend: float = 0.0


def measure_board(
    contenders: Sequence[Contender],
    split: SplitForModels,
    device: str = "cpu",
    ensembles: bool = False,
    tell: Tell = lambda done, total: None,
    first: First | None = None,
) -> Board:
    """Load, score and measure one model after another."""
    if not contenders:
        raise SaccadeError("there are no models to compare")
    if ensembles and first is not None:
        raise SaccadeError("ensembles average whole tables, of which --first leaves most unread: leave one of them out")
    spec = task_on_board(contenders[0].folders[0])
    benchmark = spec.benchmark
    assert benchmark is not None
    if first is not None:
        benchmark = benchmark.behind(first.folder, split, device, first.count, first.blend)
    total, done = sum(len(contender.folders) for contender in contenders), 0
    measured = []
    tell(0, total)
    for contender in contenders:
        one = MeasuredModel(contender, [], [])
        for folder in contender.folders:
            model: Model = load_model(folder, spec.protocol).to(device)
            data = split.regions_for(model, folder)
            try:
                output, cost = benchmark.measure(model, data)
            except torch.OutOfMemoryError as error:
                raise SaccadeError(
                    f"{device} has too little memory for {folder} on {data.name}/{data.split}"
                ) from error
            one = replace(one, said=benchmark.said_of(model))
            one.outputs.append(output)
            one.costs.append(cost)
            done += 1
            tell(done, total)
        measured.append(one)

    def row(system: str, variant: str, groups: Sequence[Sequence[tuple[MeasuredModel, int]]]) -> BoardRow:
        """A line whose every seed is a group of models taken together."""
        outputs = [[one.outputs[seed] for one, seed in group] for group in groups]
        figures = [benchmark.score(some[0] if len(some) == 1 else benchmark.average(some), data) for some in outputs]
        together = [
            {
                name: column.together([one.costs[seed][name] for one, seed in group])
                for name, column in benchmark.costs.items()
            }
            for group in groups
        ]
        cost = {name: joined([one[name] for one in together], np.mean) for name in benchmark.costs}
        models = dict.fromkeys(one.contender.folders[seed] for group in groups for one, seed in group)
        return BoardRow(
            system, variant, "ensemble" if system == ENSEMBLE else "single", tuple(models), tuple(figures), cost
        )

    if first is not None and not any(one.said for one in measured):
        raise SaccadeError(f"--first {first.folder} is for cross-encoders, and none of these models is one")
    variants = [", ".join(filter(None, (one.contender.variant, one.said))) for one in measured]
    rows = [
        row(one.contender.system, variant, [[s] for s in _seeds(one)])
        for one, variant in zip(measured, variants, strict=True)
    ]
    rows += [row(ENSEMBLE, name, groups) for name, groups in _ensembles(measured)] if ensembles else []
    metric = next(iter(benchmark.figures))
    rows.sort(key=lambda row: (row.kind == "ensemble", -row.mean(metric)))
    return Board(
        spec.name,
        data.name,
        data.split,
        len(data.images),
        len(data.texts),
        _describe_device(device),
        tuple(rows),
        benchmark.chance(data),
        chosen_here=split.split == split.config.dev_split and not split.config.held_out,
        first=None if first is None else first.folder,
    )


def _seeds(one: MeasuredModel) -> list[tuple[MeasuredModel, int]]:
    return [(one, seed) for seed in range(len(one.outputs))]


def _ensembles(measured: Sequence[MeasuredModel]) -> Iterator[tuple[str, list[list[tuple[MeasuredModel, int]]]]]:
    """Each contender's seeds together; one model of every system, once a seed; and all models there are."""
    sizes = set()  # of ensembles that stand once in the table
    for one in measured:
        if len(one.outputs) > 1:
            sizes.add(len(one.outputs))
            yield f"{one.contender.name} × {len(one.outputs)}", [_seeds(one)]
    plain = _plain(measured)
    if len(plain) > 1:
        names = " + ".join(one.contender.name for one in plain)
        names = names if len(plain) < 4 else f"one of each of {len(plain)} systems"
        seeds = min(len(one.outputs) for one in plain)
        sizes |= {len(plain)} if seeds == 1 else set()
        yield names, [[(one, seed) for one in plain] for seed in range(seeds)]
    everything = [pair for one in measured for pair in _seeds(one)]
    if len(everything) > 1 and len(everything) not in sizes:
        yield f"all {len(everything)} models", [everything]


def _plain(measured: Sequence[MeasuredModel]) -> list[MeasuredModel]:
    """One contender of each system: the one nearest to its recipe, so that these figures have not chosen it."""
    chosen: dict[str, MeasuredModel] = {}
    for one in measured:
        known = chosen.get(one.contender.system)
        if known is None or len(one.contender.variant.split()) < len(known.contender.variant.split()):
            chosen[one.contender.system] = one
    return list(chosen.values())


def _describe_device(device: str) -> str:
    if torch.device(device).type == "cuda":
        return torch.cuda.get_device_name(device)
    threads = torch.get_num_threads()
    return f"{platform.machine()} CPU, {threads} of {os.cpu_count()} cores" if device == "cpu" else device
