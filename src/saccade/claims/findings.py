"""What the finished runs say about a claim: figures of every variant and seed, comparisons and verdicts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saccade.claims.claim import Claim, ClaimData, Variant
from saccade.claims.measure import FAILURE, Measured, QueryRanks, is_finished, load_measured, load_table, query_ranks
from saccade.claims.plan import Request, Run, data_of, footings, run_of, splits_of
from saccade.claims.statistics import DRAWS, Comparison, Verdict, compare, weakest
from saccade.files import read_json
from saccade.tasks import ensemble_of


@dataclass(frozen=True)
class SplitFindings:
    """One split of one data set."""

    data: str
    split: str
    ranks: Mapping[str, Mapping[int, QueryRanks]]  # by label, then by seed
    comparisons: tuple[Comparison, ...]
    verdict: Verdict

    @property
    def title(self) -> str:
        return f"{self.data}, {self.split}"

    def any_ranks(self) -> QueryRanks | None:
        return next((one for by_seed in self.ranks.values() for one in by_seed.values()), None)

    def figures(self, label: str, metric: str) -> list[float]:
        """One figure a seed."""
        return [one.recalls()[metric] for _, one in sorted(self.ranks.get(label, {}).items())]


@dataclass(frozen=True)
class Findings:
    """All that is known about a claim."""

    claim: Claim
    seeds: int
    splits: tuple[SplitFindings, ...]
    facts: Mapping[str, Mapping[str, Any]]  # by name of the run: seconds, device, versions
    missing: Mapping[str, str]  # name of the run → why it is not there


def gather(claim: Claim, request: Request, runs: Path, draws: int = DRAWS) -> Findings:
    """Read what is there; data sets that were not asked for count where something was measured on them."""
    splits: list[SplitFindings] = []
    facts: dict[str, Mapping[str, Any]] = {}
    missing: dict[str, str] = {}
    for data in data_of(claim, list(footings())):
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
        measured = load_measured(runs / run.name) if is_finished(run, runs) else None
        if measured is not None:
            found[run.name] = measured
            continue
        failure = runs / run.name / FAILURE
        missing[run.name] = str(read_json(failure)) if failure.exists() else "not trained yet"
    return found, missing


def _runs(claim: Claim, data: ClaimData, request: Request) -> list[Run]:
    plain = [variant for variant in claim.variants if not variant.ensemble]
    return [run_of(claim, variant, data, seed, request) for variant in plain for seed in range(request.seeds)]


def _split(
    claim: Claim,
    data: ClaimData,
    split: str,
    request: Request,
    runs: Path,
    found: Mapping[str, Measured],
    draws: int,
) -> SplitFindings:
    ranks: dict[str, dict[int, QueryRanks]] = {variant.label: {} for variant in claim.variants}
    for seed in range(request.seeds):
        for variant in sorted(claim.variants, key=lambda v: bool(v.ensemble)):
            one = _ranks(claim, variant, data, split, seed, request, runs, found, ranks)
            if one is not None:
                ranks[variant.label][seed] = one
    comparisons = []
    for better, worse in claim.expect:
        both = sorted(ranks[better].keys() & ranks[worse].keys())
        if both:
            pairs = [(seed, ranks[better][seed], ranks[worse][seed]) for seed in both]
            comparisons.append(compare(better, worse, pairs, claim.metric, draws))
    verdicts = [one.verdict for one in comparisons]
    if len(comparisons) < len(claim.expect):
        verdicts.append("not measured")
    return SplitFindings(data.name, split, ranks, tuple(comparisons), weakest(verdicts))


def _ranks(
    claim: Claim,
    variant: Variant,
    data: ClaimData,
    split: str,
    seed: int,
    request: Request,
    runs: Path,
    found: Mapping[str, Measured],
    known: Mapping[str, Mapping[int, QueryRanks]],
) -> QueryRanks | None:
    if not variant.ensemble:
        measured = found.get(run_of(claim, variant, data, seed, request).name)
        return measured.ranks.get(split) if measured is not None else None
    members = [run_of(claim, claim.variant(label), data, seed, request) for label in variant.ensemble]
    if any(run.name not in found for run in members):
        return None
    tables = [load_table(runs / run.name, split) for run in members]
    return query_ranks(ensemble_of(tables), known[variant.ensemble[0]][seed].image_of_text)
