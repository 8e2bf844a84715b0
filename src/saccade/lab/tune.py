"""A search for settings, stage by stage: what a stage finds best stays as it is in the stages after it.

A plan (`plans/NAME.yaml`) names the system and its stages, each with settings of its own and the values to choose from.
Every choice is a training run; the best figure on the dev split decides. A run is named by its settings, so that one
that is finished is not trained again.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

from rich.console import Console

from saccade.core.config import as_word, load_yaml
from saccade.core.errors import SaccadeError, did_you_mean
from saccade.core.files import read_json, write_json, write_text
from saccade.lab.claims.claim import check_keys, mapping, texts
from saccade.lab.claims.plan import digest, settings_that_matter
from saccade.lab.reports import markdown_table
from saccade.training.run import run_config, train_run
from saccade.training.trainer import FitResult

PLANS = Path(__file__).parent / "plans"
RESULT = "result.json"
Chosen = dict[str, Any]  # a value for each key


@dataclass(frozen=True)
class Stage:
    name: str
    settings: tuple[str, ...]  # key=value words of its runs alone
    over: Mapping[str, tuple[Any, ...]]  # by key, the values to choose from


@dataclass(frozen=True)
class Plan:
    system: str
    stages: tuple[Stage, ...]


@dataclass(frozen=True)
class Trial:
    """One finished training."""

    stage: str
    chosen: Chosen
    metric: str
    figure: float  # of its best model on the dev split
    seconds: float
    run: str  # its folder below that of the search


def plan_names() -> list[str]:
    return sorted(path.stem for path in PLANS.glob("*.yaml"))


def read_plan(name: str) -> Plan:
    """One of the package by its name, or a YAML file. Raises: SaccadeError if it is no plan."""
    path = PLANS / f"{name}.yaml" if name in plan_names() else Path(name)
    if not path.is_file():
        known = plan_names()
        raise SaccadeError(f'there is no plan "{name}"{did_you_mean(name, known)} (there are: {", ".join(known)})')
    values = load_yaml(path)
    check_keys(values, ("system", "stages"), str(path))
    stages = []
    for stage, given in mapping(values.get("stages"), f"{path}: stages").items():
        where = f"{path}: stages.{stage}"
        check_keys(mapping(given, where), ("settings", "over"), where)
        over = mapping(given.get("over"), f"{where}.over")
        if not over or not all(isinstance(some, list) and some for some in over.values()):
            raise SaccadeError(f"{where}.over must have a list of values for each key")
        own = texts(given.get("settings", []), f"{where}.settings")
        stages.append(Stage(str(stage), own, {key: tuple(some) for key, some in over.items()}))
    if not stages:
        raise SaccadeError(f"{path} has no stages")
    return Plan(str(values.get("system")), tuple(stages))


def every_choice(stage: Stage) -> Generator[Chosen, float, None]:
    for values in product(*stage.over.values()):
        yield dict(zip(stage.over, values, strict=True))


def drawn_choices(stage: Stage, trials: int, seed: int = 0) -> Generator[Chosen, float, None]:
    """By Optuna's TPE, which is told the figure of each. Raises: SaccadeError if it is not installed."""
    try:
        import optuna
    except ImportError as error:
        raise SaccadeError(
            "--trials draws settings by Optuna, which is not here: pip install 'saccade[tune]'"
        ) from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))
    for _ in range(trials):
        trial = study.ask()
        figure = yield {key: trial.suggest_categorical(key, values) for key, values in stage.over.items()}
        study.tell(trial, figure)


def search_settings(
    plan: Plan,
    words: Sequence[str],
    out: Path,
    trials: int | None = None,
    console: Console | None = None,
    train: Callable[..., FitResult] = train_run,
) -> list[Trial]:
    """Every stage in turn: all choices, or with `trials` so many that are drawn."""
    console = console or Console()
    done: list[Trial] = []
    kept: list[str] = []
    for stage in plan.stages:
        own: list[Trial] = []
        choices = every_choice(stage) if trials is None else drawn_choices(stage, trials)
        chosen = next(choices, None)
        while chosen is not None:
            drawn = [as_word(key, value) for key, value in chosen.items()]
            trial = _trial(plan, stage, chosen, [*stage.settings, *words, *kept, *drawn], out, train, console)
            if all(trial.run != other.run for other in own):
                own.append(trial)
                _write(out, plan, words, [*done, *own])
            try:
                chosen = choices.send(trial.figure)
            except StopIteration:
                chosen = None
        best = max(own, key=lambda trial: trial.figure)
        kept += [as_word(key, value) for key, value in best.chosen.items()]
        done += own
    return done


def _trial(
    plan: Plan,
    stage: Stage,
    chosen: Chosen,
    words: Sequence[str],
    out: Path,
    train: Callable[..., FitResult],
    console: Console,
) -> Trial:
    config = run_config(plan.system, words)
    run = f"{stage.name}-{digest(settings_that_matter(config))}"
    folder = out / run
    if (folder / RESULT).exists():
        return Trial(**{**read_json(folder / RESULT), "stage": stage.name, "chosen": chosen})
    found = train(config, folder, resume=True, console=Console(quiet=True))
    trial = Trial(stage.name, chosen, found.selection, found.best[found.selection], round(found.seconds, 1), run)
    write_json(folder / RESULT, asdict(trial))
    (folder / "last.ckpt").unlink(missing_ok=True)
    for name in ("last", "tensorboard"):
        shutil.rmtree(folder / name, ignore_errors=True)
    shown = " ".join(as_word(key, value) for key, value in chosen.items())
    console.print(f"{stage.name}: {shown}: {trial.metric} {trial.figure:.2f}", markup=False, highlight=False)
    return trial


def best_words(plan: Plan, done: Sequence[Trial]) -> list[str]:
    """What the stages chose."""
    words = []
    for stage in plan.stages:
        own = [trial for trial in done if trial.stage == stage.name]
        best = max(own, key=lambda trial: trial.figure) if own else None
        words += [as_word(key, value) for key, value in best.chosen.items()] if best else []
    return words


def _write(out: Path, plan: Plan, words: Sequence[str], done: Sequence[Trial]) -> None:
    """The table as a page and as JSON, after every run."""
    parts = [f"# Search for the settings of {plan.system}", ""]
    for stage in plan.stages:
        own = sorted((t for t in done if t.stage == stage.name), key=lambda trial: -trial.figure)
        if own:
            head = [*stage.over, own[0].metric, "seconds", "run"]
            rows = [[*map(str, t.chosen.values()), f"{t.figure:.2f}", f"{t.seconds:.0f}", t.run] for t in own]
            parts += [f"## {stage.name}", "", " ".join(stage.settings), "", markdown_table(head, rows), ""]
    parts += ["Best: `" + " ".join(["saccade train", plan.system, *words, *best_words(plan, done)]) + "`", ""]
    write_text(out / "results.md", "\n".join(parts))
    write_json(out / "results.json", [asdict(trial) for trial in done])
