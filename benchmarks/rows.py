"""A row of the table of results, a line of the plot of growth, and the file that keeps both."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from saccade.core.errors import SaccadeError
from saccade.core.files import read_json, write_json

Floor = Literal["", "GEMM", "read once"]


@dataclass(frozen=True)
class Target:
    """What a figure of a row has to reach."""

    figure: str  # speedup, times_floor, gemm_share, difference, peak_bytes, exponent, or one of the row's own
    relation: Literal["≤", "≥"]
    value: float

    def met(self, found: float | None) -> bool:
        if found is None or math.isnan(found):
            return False
        return found <= self.value if self.relation == "≤" else found >= self.value


@dataclass(frozen=True)
class Row:
    """One thing done, how long it took, and what it is held against in the same run."""

    name: str
    shape: str = ""
    seconds: float | None = None
    official_seconds: float | None = None  # the official algorithm, written again from its notes
    floor_seconds: float | None = None  # what the hardware needs for the part that cannot be avoided
    floor: Floor = ""
    difference: float | None = None  # the largest, to float64
    peak_bytes: int | None = None  # on top of the inputs
    figures: dict[str, float] = field(default_factory=dict)  # what only this row has
    targets: tuple[Target, ...] = ()
    note: str = ""
    subject: str = ""  # what it belongs to: scan, search, training …
    failed: str = ""  # the sentence that says why there is no figure

    @property
    def speedup(self) -> float | None:
        return _ratio(self.official_seconds, self.seconds)

    @property
    def times_floor(self) -> float | None:
        return _ratio(self.seconds, self.floor_seconds)

    @property
    def gemm_share(self) -> float | None:
        """The rate of the whole operator as a share of the matrix product's own."""
        return _ratio(self.floor_seconds, self.seconds)

    def figure(self, name: str) -> float | None:
        return self.figures[name] if name in self.figures else getattr(self, name, None)

    @property
    def met(self) -> bool:
        return not self.failed and all(target.met(self.figure(target.figure)) for target in self.targets)


@dataclass(frozen=True)
class Growth:
    """How time grows while one size of a problem doubles and the others stay."""

    name: str  # what was timed
    axis: str  # what doubles
    sizes: tuple[int, ...] = ()
    seconds: tuple[float, ...] = ()
    shape: str = ""  # what stays
    targets: tuple[Target, ...] = ()
    failed: str = ""

    @property
    def exponent(self) -> float | None:
        """The slope of a straight line through the logarithms: 1 is linear, 2 is quadratic."""
        if len(self.sizes) < 2:
            return None
        along, up = [math.log(size) for size in self.sizes], [math.log(second) for second in self.seconds]
        middle, level = sum(along) / len(along), sum(up) / len(up)
        slope = sum((x - middle) * (y - level) for x, y in zip(along, up, strict=True))
        return slope / sum((x - middle) ** 2 for x in along)

    @property
    def met(self) -> bool:
        return not self.failed and all(target.met(self.exponent) for target in self.targets)


Result = Row | Growth


@dataclass(frozen=True)
class Results:
    """All that one machine has shown, and which machine it was."""

    machine: dict[str, str | int]
    rows: tuple[Row, ...] = ()
    growth: tuple[Growth, ...] = ()

    def __iter__(self) -> Any:
        yield from self.rows
        yield from self.growth

    def with_results(self, found: Iterable[Result]) -> Results:
        """These results in place of those of the same names; new ones come last."""
        rows, growth = {row.name: row for row in self.rows}, {(g.name, g.axis): g for g in self.growth}
        for result in found:
            if isinstance(result, Row):
                rows[result.name] = result
            else:
                growth[result.name, result.axis] = result
        return Results(self.machine, tuple(rows.values()), tuple(growth.values()))

    def without_others(self, subjects: Collection[str], found: Iterable[Result]) -> Results:
        """Without rows of these subjects that are measured no more."""
        names = {result.name for result in found}
        return replace(self, rows=tuple(r for r in self.rows if r.subject not in subjects or r.name in names))

    def write(self, path: Path | str) -> None:
        rows, growth = ([_sparse(asdict(one)) for one in several] for several in (self.rows, self.growth))
        write_json(path, {"machine": self.machine, "rows": rows, "growth": growth})

    @staticmethod
    def read(path: Path | str) -> Results:
        value = read_json(path)
        try:
            rows = tuple(Row(**{**row, "targets": _targets(row)}) for row in value["rows"])
            growth = tuple(
                Growth(**{**g, "targets": _targets(g), **{k: tuple(g.get(k, ())) for k in ("sizes", "seconds")}})
                for g in value["growth"]
            )
            return Results(dict(value["machine"]), rows, growth)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise SaccadeError(
                f"{path} holds no benchmark results: run `make bench` or `python -m benchmarks.gpu`"
            ) from error


def _targets(value: dict[str, Any]) -> tuple[Target, ...]:
    return tuple(Target(**target) for target in value.get("targets", ()))


def _sparse(value: dict[str, Any]) -> dict[str, Any]:
    """Without what was not measured, and with seconds to four places: more is noise in every diff."""
    return {name: _short(part) for name, part in value.items() if part not in (None, "", (), [], {})}


def _short(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {name: _short(part) for name, part in value.items()}
    return [_short(part) for part in value] if isinstance(value, list | tuple) else value


def _ratio(above: float | None, below: float | None) -> float | None:
    return above / below if above is not None and below else None
