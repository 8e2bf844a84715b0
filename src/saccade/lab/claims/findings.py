"""What the finished runs say about a claim: figures of every variant and seed, comparisons and verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saccade.core.files import read_json
from saccade.lab.claims.claim import Claim, ClaimData, Variant
from saccade.lab.claims.plan import Request, data_defaults, data_of, side_of, splits_of
from saccade.lab.claims.run import FAILURE, Measured, chosen_rate, is_finished, load_measured, runs_of
from saccade.lab.claims.statistics import DRAWS, Comparison, Verdict, compare, weakest
from saccade.tasks.evaluator import Scores


@dataclass(frozen=True)
class SplitFindings:
    """One split of one data set."""

    data: ClaimData
    split: str
    scores: Mapping[str, Mapping[int, Scores]]  # by label, then by seed
    comparisons: tuple[Comparison, ...]
    verdict: Verdict
    why: str  # it is undecided

    @property
    def title(self) -> str:
        extractor = f" ({self.data.extractor})" if self.data.extractor else ""
        return f"{self.data.name}, {self.split}{extractor}"

    def any_scores(self) -> Scores | None:
        return next((one for by_seed in self.scores.values() for one in by_seed.values()), None)

    def figures(self, label: str, metric: str) -> list[float]:
        """One figure a seed, of those that have one."""
        found = [one.figures for _, one in sorted(self.scores.get(label, {}).items())]
        return [figures[metric] for figures in found if metric in figures]


@dataclass(frozen=True)
class SideFindings:
    """How a variant was trained on a data set."""

    data: ClaimData
    label: str
    tried: Mapping[float, float]  # learning rate → the best on the held-out part, with the first seed
    runs: tuple[Mapping[str, Any], ...]  # what is known of each seed at the chosen rate

    @property
    def flat(self) -> bool:
        """Whether the held-out part rose no more, with any seed."""
        return all(run.get("flat") for run in self.runs)


@dataclass(frozen=True)
class Findings:
    """All that is known about a claim."""

    claim: Claim
    seeds: int
    sides: tuple[SideFindings, ...]
    splits: tuple[SplitFindings, ...]
    facts: Mapping[str, Mapping[str, Any]]  # by name of the run: seconds, device, versions
    missing: Mapping[str, str]  # name of the run → why it is not there


def gather(claim: Claim, request: Request, runs: Path, draws: int = DRAWS) -> Findings:
    """Read what is there; data sets and extractors that were not named count where something was measured on them."""
    sides: list[SideFindings] = []
    splits: list[SplitFindings] = []
    facts: dict[str, Mapping[str, Any]] = {}
    missing: dict[str, str] = {}
    asked = data_of(claim, request.data, request.extractors)
    others = [part for row in data_defaults().values() for part in data_of(claim, [row.name], list(row.extractors))]
    for data in dict.fromkeys((*asked, *others)):
        found: dict[tuple[str, int], Measured] = {}  # by label and seed
        known, absent, here = {}, {}, []
        for variant in (variant for variant in claim.variants if variant.trained):
            side = side_of(claim, variant, data, request)
            own: dict[str, Measured] = {}
            for run in runs_of(side, runs):
                measured = load_measured(runs / run.name, run.evaluator) if is_finished(run, runs) else None
                if measured is not None:
                    own[run.name] = measured
                    known[measured.facts.get("run", run.name)] = measured.facts
                else:
                    failure = runs / run.name / FAILURE
                    absent[run.name] = str(read_json(failure)) if failure.exists() else "not trained yet"
            rate = chosen_rate(side, runs)
            at_best = side.by_rate[rate] if rate is not None else ()
            chosen = {run.seed: own[run.name] for run in at_best if run.name in own}
            found |= {(variant.label, seed): measured for seed, measured in chosen.items()}
            tried = {run.config.trainer.learning_rate: run.name for run in side.search if run.name in own}
            best = {learning_rate: float(own[name].facts["held_out"]) for learning_rate, name in tried.items()}
            here.append(SideFindings(data, variant.label, best, tuple(one.facts for one in chosen.values())))
        if data not in asked and not known:
            continue
        facts |= known
        missing |= absent
        sides += here
        rising = {side.label for side in here if not side.flat}
        splits += [_split(claim, data, split, request.seeds, runs, found, rising, draws) for split in splits_of(data)]
    return Findings(claim, request.seeds, tuple(sides), tuple(splits), facts, missing)


def _split(
    claim: Claim,
    data: ClaimData,
    split: str,
    seeds: int,
    runs: Path,
    found: Mapping[tuple[str, int], Measured],
    rising: Set[str],
    draws: int,
) -> SplitFindings:
    scores: dict[str, dict[int, Scores]] = {variant.label: {} for variant in claim.variants}
    for seed in range(seeds):
        measured = {label: one for (label, its), one in found.items() if its == seed}
        for variant in claim.variants:
            if (one := _scores(claim, variant, split, runs, measured)) is not None:
                scores[variant.label][seed] = one
    unfinished = [one.label for one in claim.variants if one.label in rising or rising & {*one.ensemble}]
    comparisons = []
    for better, worse in claim.expect:
        pairs = [(seed, one, scores[worse].get(seed)) for seed, one in sorted(scores[better].items())]
        both = [(seed, a, b) for seed, a, b in pairs if b and claim.metric in a.figures and claim.metric in b.figures]
        if both:
            comparisons.append(compare(better, worse, both, claim.metric, draws, unfinished, seeds))
    reasons = [one.why for one in comparisons if one.why]
    if len(comparisons) < len(claim.expect):
        reasons.append("not all of it is measured")
    verdicts: list[Verdict] = [one.verdict for one in comparisons]
    verdict = weakest([*verdicts, "undecided"] if len(comparisons) < len(claim.expect) else verdicts)
    why = "; ".join(dict.fromkeys(reasons)) if verdict == "undecided" else ""
    return SplitFindings(data, split, scores, tuple(comparisons), verdict, why)


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
