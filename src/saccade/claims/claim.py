"""A claim: what a paper says is better than what, as a small YAML file that says all that is needed to measure it.

Every key and name of a file is checked when it is read, so that a slip is a sentence now and not an odd table later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from saccade.config import load_yaml
from saccade.errors import SaccadeError, did_you_mean
from saccade.metrics import CUTOFFS, WAYS

FILES = Path(__file__).parent / "files"
METRICS = ("rsum", *(f"{way}_r{k}" for way in WAYS for k in CUTOFFS))


@dataclass(frozen=True)
class Variant:
    """One side of a comparison: a model trained with some settings, or several variants averaged."""

    label: str
    system: str
    settings: tuple[str, ...] = ()  # key=value words of `saccade train`
    ensemble: tuple[str, ...] = ()  # labels of the variants whose similarities are averaged


@dataclass(frozen=True)
class Published:
    """Figures that others have printed for these variants."""

    data: str
    metric: str
    source: str
    values: Mapping[str, float]  # by label


@dataclass(frozen=True)
class ClaimData:
    """A data set to measure the claim on; None leaves the splits to the footing that all claims share."""

    name: str
    splits: tuple[str, ...] | None = None
    settings: tuple[str, ...] = ()


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

    def variant(self, label: str) -> Variant:
        return next(variant for variant in self.variants if variant.label == label)


def claim_names(folder: Path = FILES) -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in folder.glob("*.yaml")))


def load_claim(name: str, folder: Path = FILES) -> Claim:
    """The claim of this name, or a sentence on what its file should hold."""
    if name not in claim_names(folder):
        known = claim_names(folder)
        raise SaccadeError(
            f'there is no claim "{name}"{did_you_mean(name, known) or ";"} `saccade claims` lists them all'
        )
    path = folder / f"{name}.yaml"
    return read_claim(name, load_yaml(path), str(path))


def read_claim(name: str, values: Mapping[str, Any], where: str) -> Claim:
    required = ("title", "system", "paper", "statement", "variants", "expect")
    _check_keys(values, (*required, "metric", "data", "note", "published"), where)
    for key in required:
        if key not in values:
            raise SaccadeError(f"{where} has no {key}")
    system = _text(values["system"], f"{where}: system")
    paper = _mapping(values["paper"], f"{where}: paper")
    _check_keys(paper, ("title", "venue"), f"{where}: paper")
    variants = _variants(values["variants"], system, f"{where}: variants")
    labels = tuple(variant.label for variant in variants)
    metric = values.get("metric", "rsum")
    _check_name(metric, METRICS, f"{where}: metric", "metric")
    return Claim(
        name=name,
        title=_text(values["title"], f"{where}: title"),
        system=system,
        paper=_text(paper.get("title"), f"{where}: paper.title"),
        venue=_text(paper.get("venue"), f"{where}: paper.venue"),
        statement=_text(values["statement"], f"{where}: statement"),
        variants=variants,
        expect=_expectations(values["expect"], labels, f"{where}: expect"),
        metric=metric,
        data=_data(values["data"], f"{where}: data") if "data" in values else None,
        note=_text(values["note"], f"{where}: note") if "note" in values else "",
        published=_published(values.get("published", []), labels, f"{where}: published"),
    )


def _variants(values: Any, system: str, where: str) -> tuple[Variant, ...]:
    found = []
    for label, given in _mapping(values, where).items():
        here = f"{where}.{label}"
        if ">" in _text(label, f"{where}: a label"):
            raise SaccadeError(f'{here}: a label cannot hold ">", which stands between labels in expect')
        given = _mapping({} if given is None else given, here)
        _check_keys(given, ("system", "settings", "ensemble"), here)
        ensemble = _texts(given.get("ensemble", []), f"{here}.ensemble")
        settings = _texts(given.get("settings", []), f"{here}.settings")
        if ensemble and ("settings" in given or "system" in given):
            raise SaccadeError(f"{here} has an ensemble, so it has neither settings nor a system of its own")
        if bad := [word for word in settings if "=" not in word]:
            raise SaccadeError(f'{here}.settings: "{bad[0]}" is not of the form key=value')
        found.append(Variant(label, _text(given.get("system", system), f"{here}.system"), settings, ensemble))
    single = [variant.label for variant in found if not variant.ensemble]
    for variant in found:
        for member in variant.ensemble:
            _check_name(member, single, f"{where}.{variant.label}.ensemble", "variant")
    if len(found) < 2:
        raise SaccadeError(f"{where}: a claim compares at least two variants")
    return tuple(found)


def _expectations(values: Any, labels: Sequence[str], where: str) -> tuple[tuple[str, str], ...]:
    """Chains such as `K=3 > K=2 > K=1` as pairs of neighbours, each pair once."""
    pairs: list[tuple[str, str]] = []
    for chain in _texts(values, where):
        parts = [part.strip() for part in chain.split(">")]
        if len(parts) < 2:
            raise SaccadeError(f'{where}: "{chain}" is not of the form LABEL > LABEL')
        for part in parts:
            _check_name(part, labels, where, "variant")
        pairs += pairwise(parts)
    if not pairs:
        raise SaccadeError(f"{where}: say at least once which variant is better, LABEL > LABEL")
    for better, worse in pairs:
        if better == worse or (worse, better) in pairs:
            raise SaccadeError(f'{where}: "{better} > {worse}" contradicts itself')
    return tuple(dict.fromkeys(pairs))


def _data(values: Any, where: str) -> tuple[ClaimData, ...]:
    found = []
    for name, given in _mapping(values, where).items():
        here = f"{where}.{name}"
        given = _mapping({} if given is None else given, here)
        _check_keys(given, ("splits", "settings"), here)
        splits = _texts(given["splits"], f"{here}.splits") if "splits" in given else None
        found.append(ClaimData(name, splits, _texts(given.get("settings", []), f"{here}.settings")))
    return tuple(found)


def _published(values: Any, labels: Sequence[str], where: str) -> tuple[Published, ...]:
    if not isinstance(values, list):
        raise SaccadeError(f"{where} must be a list of tables, each with data, metric, source and values")
    found = []
    for number, given in enumerate(values, start=1):
        here = f"{where} {number}"
        _check_keys(_mapping(given, here), ("data", "metric", "source", "values"), here)
        _check_name(given.get("metric"), METRICS, f"{here}: metric", "metric")
        figures = _mapping(given.get("values"), f"{here}.values")
        for label, value in figures.items():
            _check_name(label, labels, f"{here}.values", "variant")
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise SaccadeError(f"{here}.values.{label} must be a number, not {value!r}")
        data, source = (_text(given.get(key), f"{here}: {key}") for key in ("data", "source"))
        found.append(Published(data, given["metric"], source, {k: float(v) for k, v in figures.items()}))
    return tuple(found)


def _check_keys(values: Mapping[str, Any], known: Sequence[str], where: str) -> None:
    for key in values:
        if key not in known:
            raise SaccadeError(
                f'{where}: there is no key "{key}"{did_you_mean(str(key), known)} (there are: {", ".join(known)})'
            )


def _check_name(name: Any, known: Sequence[str], where: str, what: str) -> None:
    if name not in known:
        raise SaccadeError(
            f'{where}: there is no {what} "{name}"{did_you_mean(str(name), known)} (there are: {", ".join(known)})'
        )


def _mapping(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise SaccadeError(f"{where} must be a mapping of keys to values, not {value!r}")
    return value


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise SaccadeError(f"{where} must be text, not {value!r}")
    return value.strip()


def _texts(value: Any, where: str) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise SaccadeError(f"{where} must be a list of texts, not {value!r}")
    return tuple(_text(one, where) for one in value)
