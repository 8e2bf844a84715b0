"""A claim: what a paper says is better than what, as a small YAML file that says all that is needed to measure it.

Every key and name of a file is checked when it is read, so that a slip is an error now and not an odd table later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from saccade.core.config import load_yaml
from saccade.core.errors import SaccadeError, did_you_mean, not_among
from saccade.tasks import find_task, task_names, task_of
from saccade.tasks.evaluator import Evaluator

FILES = Path(__file__).parent / "files"


@dataclass(frozen=True)
class Variant:
    """One side of a comparison: a model trained with some settings, several variants averaged, or a plain number."""

    label: str
    system: str
    settings: tuple[str, ...] = ()  # key=value words of `saccade train`
    settings_on: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # further ones by data set
    ensemble: tuple[str, ...] = ()  # labels of the variants whose similarities are averaged
    figure: float | None = None  # of the claim's metric: nothing is trained
    before: tuple[str, ...] = ()  # a system and its settings: the run that this one starts from, of the same seed

    @property
    def trained(self) -> bool:
        return not self.ensemble and self.figure is None

    def words(self, data: str) -> tuple[str, ...]:
        """All its settings on a data set."""
        return (*self.settings, *self.settings_on.get(data, ()))

    def extractor(self, data: str) -> str | None:
        """What it names itself."""
        pairs = (word.partition("=") for word in self.words(data))
        return next((value for key, _, value in pairs if key in ("extractor", "data.extractor")), None)


@dataclass(frozen=True)
class Published:
    """Figures that others have printed for these variants."""

    data: str
    metric: str
    source: str
    values: Mapping[str, float]  # by label


@dataclass(frozen=True)
class ClaimData:
    """A data set to measure the claim on; None leaves the splits to the defaults that all claims share."""

    name: str
    splits: tuple[str, ...] | None = None
    settings: tuple[str, ...] = ()
    extractor: str | None = None  # of photos; None: what the defaults or the variants name

    @property
    def title(self) -> str:
        return f"{self.name} ({self.extractor})" if self.extractor else self.name


@dataclass(frozen=True)
class Claim:
    name: str
    title: str
    system: str
    paper: str
    venue: str
    statement: str
    variants: tuple[Variant, ...]
    expect: tuple[tuple[str, str], ...]  # (better, worse)
    metric: str
    data: tuple[ClaimData, ...] | None  # None: every data set there is
    note: str
    published: tuple[Published, ...]
    task: str | None = None  # by whose figures it is judged, if not those of what the runs are trained for

    @property
    def evaluator(self) -> Evaluator[Any, Any]:
        return evaluator_for(self.system, self.task)

    @property
    def compares_extractors(self) -> bool:
        """Whether a variant names its own, so that no other can be asked for."""
        data = {name for one in self.variants for name in one.settings_on} or {""}
        return any(one.extractor(name) for one in self.variants for name in data)

    def own_extractor(self, data: str) -> str | None:
        """The one that all variants name."""
        named = {variant.extractor(data) for variant in self.variants if variant.trained}
        return next(iter(named)) if len(named) == 1 else None

    @property
    def metric_name(self) -> str:
        return self.evaluator.metrics[self.metric]

    def variant(self, label: str) -> Variant:
        return next(variant for variant in self.variants if variant.label == label)


def evaluator_for(system: str, task: str | None = None) -> Evaluator[Any, Any]:
    """How runs of a system are measured, as those of another task or of their own.

    Raises: SaccadeError if there is no such system, or the other task cannot measure it.
    """
    spec = task_of(system)
    if task is None:
        return spec.evaluator
    if task not in task_names():
        raise SaccadeError(f"there is no task {not_among(task, task_names())}")
    other = find_task(task)
    if not issubclass(spec.protocol, (other.protocol, *other.measures)):
        raise SaccadeError(f"{system} is a {spec.noun}: it cannot be measured as a {other.noun}")
    return other.evaluator


def claim_names(folder: Path = FILES) -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in folder.glob("*.yaml")))


def load_claim(name: str, folder: Path = FILES) -> Claim:
    """The claim of this name. Raises: SaccadeError if there is none, or its file holds something else."""
    if name not in claim_names(folder):
        known = claim_names(folder)
        raise SaccadeError(
            f'there is no claim "{name}"{did_you_mean(name, known) or ";"} `saccade claims` lists them all'
        )
    path = folder / f"{name}.yaml"
    return read_claim(name, load_yaml(path), str(path))


def read_claim(name: str, values: Mapping[str, Any], where: str) -> Claim:
    required = ("title", "system", "paper", "statement", "variants", "expect")
    check_keys(values, (*required, "task", "metric", "data", "note", "published"), where)
    for key in required:
        if key not in values:
            raise SaccadeError(f"{where} has no {key}")
    system = text(values["system"], f"{where}: system")
    paper = mapping(values["paper"], f"{where}: paper")
    check_keys(paper, ("title", "venue"), f"{where}: paper")
    task = text(values["task"], f"{where}: task") if "task" in values else None
    _evaluator(system, None, f"{where}: system")
    evaluator = _evaluator(system, task, f"{where}: task")
    variants = _variants(values["variants"], system, f"{where}: variants")
    labels = tuple(variant.label for variant in variants)
    metric = values.get("metric", evaluator.metric)
    check_name(metric, list(evaluator.metrics), f"{where}: metric", "metric")
    return Claim(
        name=name,
        title=text(values["title"], f"{where}: title"),
        system=system,
        paper=text(paper.get("title"), f"{where}: paper.title"),
        venue=text(paper.get("venue"), f"{where}: paper.venue"),
        statement=text(values["statement"], f"{where}: statement"),
        variants=variants,
        expect=_expectations(values["expect"], labels, f"{where}: expect"),
        metric=metric,
        data=_data(values["data"], f"{where}: data") if "data" in values else None,
        note=text(values["note"], f"{where}: note") if "note" in values else "",
        published=_published(values.get("published", []), labels, evaluator, f"{where}: published"),
        task=task,
    )


def _evaluator(system: str, task: str | None, where: str) -> Evaluator[Any, Any]:
    try:
        return evaluator_for(system, task)
    except SaccadeError as error:
        raise SaccadeError(f"{where}: {error}") from error


def _variants(values: Any, system: str, where: str) -> tuple[Variant, ...]:
    found = []
    for label, given in mapping(values, where).items():
        here = f"{where}.{label}"
        if ">" in text(label, f"{where}: a label"):
            raise SaccadeError(f'{here}: a label cannot hold ">", which stands between labels in expect')
        given = mapping({} if given is None else given, here)
        check_keys(given, ("system", "settings", "settings_on", "ensemble", "figure", "before"), here)
        ensemble = texts(given.get("ensemble", []), f"{here}.ensemble")
        settings = _words(given.get("settings", []), f"{here}.settings")
        by_data = mapping(given.get("settings_on", {}), f"{here}.settings_on")
        settings_on = {data: _words(words, f"{here}.settings_on.{data}") for data, words in by_data.items()}
        before = _before(given["before"], f"{here}.before") if "before" in given else ()
        figure = number(given["figure"], f"{here}.figure") if "figure" in given else None
        own = text(given.get("system", system), f"{here}.system")
        if len({"ensemble", "figure"} & given.keys()) == 2:
            raise SaccadeError(f"{here} is an ensemble or a plain figure, not both")
        if (ensemble or figure is not None) and {"settings", "settings_on", "system", "before"} & given.keys():
            what = "an ensemble" if ensemble else "a plain figure"
            raise SaccadeError(f"{here} has {what}, so it has neither settings nor a system of its own")
        if ensemble and not evaluator_for(system).ensembles:
            raise SaccadeError(f"{here}: an ensemble averages similarities, and {system} has none")
        if _evaluator(own, None, f"{here}.system") is not evaluator_for(system):
            raise SaccadeError(f"{here}.system: {own} is measured by other figures than {system}")
        found.append(Variant(label, own, settings, settings_on, ensemble, figure, before))
    single = [variant.label for variant in found if variant.trained]
    for variant in found:
        for member in variant.ensemble:
            check_name(member, single, f"{where}.{variant.label}.ensemble", "variant")
    if len(found) < 2 or not single:
        raise SaccadeError(f"{where}: a claim compares at least two variants, one of them trained")
    return tuple(found)


def _before(value: Any, where: str) -> tuple[str, ...]:
    """{system: NAME, settings: [KEY=VALUE]} as one tuple."""
    given = mapping(value, where)
    check_keys(given, ("system", "settings"), where)
    system = text(given.get("system"), f"{where}.system")
    _evaluator(system, None, f"{where}.system")
    return (system, *_words(given.get("settings", []), f"{where}.settings"))


def _words(value: Any, where: str) -> tuple[str, ...]:
    words = texts(value, where)
    if bad := [word for word in words if "=" not in word]:
        raise SaccadeError(f'{where}: "{bad[0]}" is not of the form key=value')
    return words


def _expectations(values: Any, labels: Sequence[str], where: str) -> tuple[tuple[str, str], ...]:
    """Chains such as `K=3 > K=2 > K=1` as pairs of neighbours, each pair once."""
    pairs: list[tuple[str, str]] = []
    for chain in texts(values, where):
        parts = [part.strip() for part in chain.split(">")]
        if len(parts) < 2:
            raise SaccadeError(f'{where}: "{chain}" is not of the form LABEL > LABEL')
        for part in parts:
            check_name(part, labels, where, "variant")
        pairs += pairwise(parts)
    if not pairs:
        raise SaccadeError(f"{where}: say at least once which variant is better, LABEL > LABEL")
    for better, worse in pairs:
        if better == worse or (worse, better) in pairs:
            raise SaccadeError(f'{where}: "{better} > {worse}" contradicts itself')
    return tuple(dict.fromkeys(pairs))


def _data(values: Any, where: str) -> tuple[ClaimData, ...]:
    found = []
    for name, given in mapping(values, where).items():
        here = f"{where}.{name}"
        given = mapping({} if given is None else given, here)
        check_keys(given, ("splits", "settings"), here)
        splits = texts(given["splits"], f"{here}.splits") if "splits" in given else None
        found.append(ClaimData(name, splits, texts(given.get("settings", []), f"{here}.settings")))
    return tuple(found)


def _published(values: Any, labels: Sequence[str], evaluator: Evaluator[Any, Any], where: str) -> tuple[Published, ...]:
    if not isinstance(values, list):
        raise SaccadeError(f"{where} must be a list of tables, each with data, metric, source and values")
    found = []
    for place, given in enumerate(values, start=1):
        here = f"{where} {place}"
        check_keys(mapping(given, here), ("data", "metric", "source", "values"), here)
        check_name(given.get("metric"), list(evaluator.metrics), f"{here}: metric", "metric")
        figures = mapping(given.get("values"), f"{here}.values")
        for label in figures:
            check_name(label, labels, f"{here}.values", "variant")
        numbers = {label: number(value, f"{here}.values.{label}") for label, value in figures.items()}
        data, source = (text(given.get(key), f"{here}: {key}") for key in ("data", "source"))
        found.append(Published(data, given["metric"], source, numbers))
    return tuple(found)


def check_keys(values: Mapping[str, Any], known: Sequence[str], where: str) -> None:
    for key in values:
        check_name(key, known, where, "key")


def check_name(name: Any, known: Sequence[str], where: str, what: str) -> None:
    if name not in known:
        raise SaccadeError(
            f'{where}: there is no {what} "{name}"{did_you_mean(str(name), known)} (there are: {", ".join(known)})'
        )


def mapping(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise SaccadeError(f"{where} must be a mapping of keys to values, not {value!r}")
    return value


def number(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SaccadeError(f"{where} must be a number, not {value!r}")
    return float(value)


def text(value: Any, where: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise SaccadeError(f"{where} must be text, not {value!r}")
    return value.strip()


def texts(value: Any, where: str) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise SaccadeError(f"{where} must be a list of texts, not {value!r}")
    return tuple(text(one, where) for one in value)
