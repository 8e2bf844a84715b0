"""Measuring the contenders: recalls, costs, and what their ensembles add."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int

from saccade.core.errors import SaccadeError
from saccade.core.progress import Tell
from saccade.lab.leaderboard.contenders import Contender
from saccade.lab.leaderboard.cost import Cost, measure_cost
from saccade.metrics import chance, recall
from saccade.models import Matcher, load_model
from saccade.tasks.evaluator import SplitForModels
from saccade.tasks.matching.evaluate import ensemble_of

Table = Float[np.ndarray, "image text"]


@dataclass(frozen=True)
class Row:
    """A line of the table: one set of figures a seed, and what one model (or one ensemble) costs."""

    system: str
    variant: str
    kind: Literal["single", "ensemble"]
    models: tuple[str, ...]
    figures: tuple[Mapping[str, float], ...]
    cost: Cost

    @property
    def name(self) -> str:
        return f"{self.system}: {self.variant}" if self.variant else self.system

    @property
    def rsum(self) -> float:
        return float(np.mean([one["rsum"] for one in self.figures]))


@dataclass(frozen=True)
class Board:
    """All rows, the best first, single models before ensembles."""

    data: str
    split: str
    images: int
    texts: int
    device: str
    rows: tuple[Row, ...]
    chance: Mapping[str, float]
    chosen_here: bool  # whether this split also chose which epoch's model was kept

    def of_kind(self, kind: Literal["single", "ensemble"]) -> list[Row]:
        return [row for row in self.rows if row.kind == kind]


@dataclass(frozen=True)
class Measured:
    """A contender's models, one a seed, on the split."""

    contender: Contender
    tables: list[Table]
    costs: list[Cost]


def measure_board(
    contenders: Sequence[Contender],
    split: SplitForModels,
    device: str = "cpu",
    ensembles: bool = False,
    tell: Tell = lambda done, total: None,
) -> Board:
    """Load, score and measure one model after another."""
    if not contenders:
        raise SaccadeError("there are no models to compare")
    total, done = sum(len(contender.folders) for contender in contenders), 0
    measured = []
    tell(0, total)
    for contender in contenders:
        tables, costs = [], []
        for folder in contender.folders:
            model = load_model(folder, Matcher).to(device)
            data = split.regions_for(model, folder)
            try:
                table, cost = measure_cost(model, data)
            except torch.OutOfMemoryError as error:
                raise SaccadeError(
                    f"{device} has too little memory for {folder} on {data.name}/{data.split}"
                ) from error
            tables.append(table)
            costs.append(cost)
            done += 1
            tell(done, total)
        measured.append(Measured(contender, tables, costs))
    owners = data.image_of_text
    rows = [_single(one, owners) for one in measured] + (_ensembles(measured, owners) if ensembles else [])
    rows.sort(key=lambda row: (row.kind == "ensemble", -row.rsum))
    return Board(
        data.name,
        data.split,
        len(data.images),
        len(owners),
        _describe(device),
        tuple(rows),
        chance(owners, len(data.images)),
        chosen_here=split.split == split.config.dev_split,
    )


def _single(one: Measured, owners: Int[np.ndarray, " text"]) -> Row:
    contender = one.contender
    figures = tuple(recall(table, owners) for table in one.tables)
    return Row(contender.system, contender.variant, "single", contender.folders, figures, _mean(one.costs))


def _ensembles(measured: Sequence[Measured], owners: Int[np.ndarray, " text"]) -> list[Row]:
    """Each contender's seeds together; one model of every system, once a seed; and all models there are."""

    def row(name: str, groups: Sequence[Sequence[tuple[Measured, int]]]) -> Row:
        figures = tuple(recall(ensemble_of([one.tables[seed] for one, seed in group]), owners) for group in groups)
        cost = _mean([_sum([one.costs[seed] for one, seed in group]) for group in groups])
        models = dict.fromkeys(one.contender.folders[seed] for group in groups for one, seed in group)
        return Row("ensemble", name, "ensemble", tuple(models), figures, cost)

    rows = []
    for one in measured:
        if len(one.tables) > 1:
            rows.append(row(f"{one.contender.name} × {len(one.tables)}", [[(one, s) for s in range(len(one.tables))]]))
    plain = _plain(measured)
    if len(plain) > 1:
        seeds = min(len(one.tables) for one in plain)
        names = " + ".join(one.contender.name for one in plain)
        names = names if len(plain) < 4 else f"one of each of {len(plain)} systems"
        rows.append(row(names, [[(one, seed) for one in plain] for seed in range(seeds)]))
    everything = [(one, seed) for one in measured for seed in range(len(one.tables))]
    if len(everything) > 1 and all(len(everything) != len(row.models) for row in rows if len(row.figures) == 1):
        rows.append(row(f"all {len(everything)} models", [everything]))
    return rows


def _plain(measured: Sequence[Measured]) -> list[Measured]:
    """One contender of each system: the one nearest to its recipe, which no look at these figures has chosen."""
    chosen: dict[str, Measured] = {}
    for one in measured:
        known = chosen.get(one.contender.system)
        if known is None or len(one.contender.variant.split()) < len(known.contender.variant.split()):
            chosen[one.contender.system] = one
    return list(chosen.values())


def _mean(costs: Sequence[Cost]) -> Cost:
    return _together(costs, np.mean, np.mean)


def _sum(costs: Sequence[Cost]) -> Cost:
    """Models asked one after another: their sizes and times add up, their memory does not."""
    return _together(costs, sum, max)


def _together(costs: Sequence[Cost], add: Callable[[list[float]], Any], join: Callable[[list[int]], Any]) -> Cost:
    peaks = [cost.peak_bytes for cost in costs if cost.peak_bytes is not None]
    return Cost(
        parameters=round(add([cost.parameters for cost in costs])),
        code_bytes=round(add([cost.code_bytes for cost in costs])),
        query_ms=float(add([cost.query_ms for cost in costs])),
        table_seconds=float(add([cost.table_seconds for cost in costs])),
        peak_bytes=round(join(peaks)) if peaks else None,
    )


def _describe(device: str) -> str:
    if torch.device(device).type == "cuda":
        return torch.cuda.get_device_name(device)
    threads = torch.get_num_threads()
    return f"{platform.machine()} CPU, {threads} of {os.cpu_count()} cores" if device == "cpu" else device
