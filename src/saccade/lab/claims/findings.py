"""What the finished runs say about a claim: figures of every variant and seed, comparisons and verdicts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from saccade.core.files import read_json
from saccade.lab.claims.claim import Claim, Variant
from saccade.lab.claims.plan import Request, data_defaults, data_of, run_of, splits_of
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
        found: dict[tuple[str, int], Measured] = {}  # by label and seed
        known, absent = {}, {}
        for variant, seed in product(claim.variants, range(request.seeds)):
            if variant.trained:
                run = run_of(claim, variant, data, seed, request)
                measured = load_measured(runs / run.name, run.evaluator) if is_finished(run, runs) else None
                if measured is not None:
                    found[variant.label, seed] = measured
                    known[measured.facts.get("run", run.name)] = measured.facts
                else:
                    failure = runs / run.name / FAILURE
                    absent[run.name] = str(read_json(failure)) if failure.exists() else "not trained yet"
        if data.name not in request.data and not found:
            continue
        facts |= known
        missing |= absent
        splits += [_split(claim, data.name, split, request.seeds, runs, found, draws) for split in splits_of(data)]
    return Findings(claim, request.seeds, tuple(splits), facts, missing)


def _split(
    claim: Claim, data: str, split: str, seeds: int, runs: Path, found: Mapping[tuple[str, int], Measured], draws: int
) -> SplitFindings:
    scores: dict[str, dict[int, Scores]] = {variant.label: {} for variant in claim.variants}
    for seed in range(seeds):
        measured = {label: one for (label, its), one in found.items() if its == seed}
        for variant in claim.variants:
            if (one := _scores(claim, variant, split, runs, measured)) is not None:
                scores[variant.label][seed] = one
    comparisons = []
    for better, worse in claim.expect:
        pairs = [(seed, one, scores[worse].get(seed)) for seed, one in sorted(scores[better].items())]
        both = [(seed, a, b) for seed, a, b in pairs if b and claim.metric in a.figures and claim.metric in b.figures]
        if both:
            comparisons.append(compare(better, worse, both, claim.metric, draws))
    verdicts = [one.verdict for one in comparisons]
    if len(comparisons) < len(claim.expect):
        verdicts.append("not measured")
    return SplitFindings(data, split, scores, tuple(comparisons), weakest(verdicts))


def _scores(claim: Claim, variant: Variant, split: str, runs: Path, measured: Mapping[str, Measured]) -> Scores | None:
    """One variant with one seed, from what was measured of the trained ones with that seed."""
    if variant.trained:
        return measured[variant.label].scores.get(split) if variant.label in measured else None
    if variant.figure is not None:
        others = (one.scores[split] for one in measured.values() if split in one.scores)
        alike = next((one for one in others if claim.metric in one.figures), None)
        return alike.with_figure(claim.metric, variant.figure) if alike is not None else None
    members = [measured[label] for label in variant.ensemble if label in measured]
    if len(members) < len(variant.ensemble) or any(split not in one.kept for one in members):
        return None
    folders = [runs / str(one.facts["run"]) for one in members]
    return claim.evaluator.ensemble(folders, split, members[0].kept[split])
