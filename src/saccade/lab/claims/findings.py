"""What the finished runs say about a claim: figures of every variant and seed, comparisons and verdicts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saccade.core.files import read_json
from saccade.lab.claims.claim import Claim, ClaimData, Variant
from saccade.lab.claims.plan import Request, Run, data_defaults, data_of, run_of, splits_of
from saccade.lab.claims.run import FAILURE, Measured, is_finished, load_measured
from saccade.lab.claims.statistics import DRAWS, Comparison, Verdict, compare, weakest
from saccade.tasks.evaluator import Scores


@dataclass(frozen=True)
class SplitFindings:
    """One split of one data set."""

    data: str
    split: str
    scores: Mapping[str, Mapping[int, Scores]]  # by label, then by seed
    comparisons: tuple[Comparison, ...]
    verdict: Verdict

    @property
    def title(self) -> str:
        return f"{self.data}, {self.split}"

    def any_scores(self) -> Scores | None:
        return next((one for by_seed in self.scores.values() for one in by_seed.values()), None)

    def figures(self, label: str, metric: str) -> list[float]:
        """One figure a seed, of those that have one."""
        found = [one.figures for _, one in sorted(self.scores.get(label, {}).items())]
        return [figures[metric] for figures in found if metric in figures]


@dataclass(frozen=True)
class Findings:
    """All that is known about a claim."""

    claim: Claim
    seeds: int
    splits: tuple[SplitFindings, ...]
    facts: Mapping[str, Mapping[str, Any]]  # by name of the run: seconds, device, versions
    missing: Mapping[str, str]  # name of the run → why it is not there


def gather(claim: Claim, request: Request, runs: Path, draws: int = DRAWS) -> Findings:
    """Read what is there; data sets that were not named count where something was measured on them."""
    splits: list[SplitFindings] = []
    facts: dict[str, Mapping[str, Any]] = {}
    missing: dict[str, str] = {}
    for data in data_of(claim, list(data_defaults())):
        found, absent = _measured(claim, data, request, runs)
        if data.name not in request.data and not found:
            continue
        facts |= {one.facts.get("run", name): one.facts for name, one in found.items()}
        missing |= absent
        for split in splits_of(data):
            splits.append(_split(claim, data, split, request, runs, found, draws))
    return Findings(claim, request.seeds, tuple(splits), facts, missing)


def _measured(
    claim: Claim, data: ClaimData, request: Request, runs: Path
) -> tuple[dict[str, Measured], dict[str, str]]:
    """The finished runs of a claim by name, and why others are missing."""
    found, missing = {}, {}
    for run in _runs(claim, data, request):
        measured = load_measured(runs / run.name, run.evaluator) if is_finished(run, runs) else None
        if measured is not None:
            found[run.name] = measured
            continue
        failure = runs / run.name / FAILURE
        missing[run.name] = str(read_json(failure)) if failure.exists() else "not trained yet"
    return found, missing


def _runs(claim: Claim, data: ClaimData, request: Request) -> list[Run]:
    trained = [variant for variant in claim.variants if variant.trained]
    return [run_of(claim, variant, data, seed, request) for variant in trained for seed in range(request.seeds)]


def _split(
    claim: Claim,
    data: ClaimData,
    split: str,
    request: Request,
    runs: Path,
    found: Mapping[str, Measured],
    draws: int,
) -> SplitFindings:
    scores: dict[str, dict[int, Scores]] = {variant.label: {} for variant in claim.variants}
    for seed in range(request.seeds):
        measured = {
            variant.label: found.get(run_of(claim, variant, data, seed, request).name)
            for variant in claim.variants
            if variant.trained
        }
        for variant in claim.variants:
            one = _scores(claim, variant, split, runs, measured)
            if one is not None:
                scores[variant.label][seed] = one
    comparisons = []
    for better, worse in claim.expect:
        pairs = [
            (seed, one, scores[worse][seed]) for seed, one in sorted(scores[better].items()) if seed in scores[worse]
        ]
        pairs = [(s, a, b) for s, a, b in pairs if claim.metric in a.figures and claim.metric in b.figures]
        if pairs:
            comparisons.append(compare(better, worse, pairs, claim.metric, draws))
    verdicts = [one.verdict for one in comparisons]
    if len(comparisons) < len(claim.expect):
        verdicts.append("not measured")
    return SplitFindings(data.name, split, scores, tuple(comparisons), weakest(verdicts))


def _scores(
    claim: Claim, variant: Variant, split: str, runs: Path, measured: Mapping[str, Measured | None]
) -> Scores | None:
    """One variant with one seed, from what was measured of the trained ones with that seed."""
    if variant.trained:
        own = measured[variant.label]
        return own.scores.get(split) if own is not None else None
    if variant.figure is not None:
        others = (one.scores[split] for one in measured.values() if one is not None and split in one.scores)
        alike = next((one for one in others if claim.metric in one.figures), None)
        return alike.with_figure(claim.metric, variant.figure) if alike is not None else None
    members = [measured[label] for label in variant.ensemble]
    if any(one is None or split not in one.kept for one in members):
        return None
    folders = [runs / str(one.facts["run"]) for one in members if one is not None]
    first = members[0]
    assert first is not None
    return claim.evaluator.ensemble(folders, split, first.kept[split])
