"""The report of a whole run on one page: what was done, the numbers, searches with their reasons, and hard twins.

A report is data; `report.html` makes markup of it, and escapes all texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from jaxtyping import Float, UInt8
from numpy import ndarray as Array

from saccade.core.errors import SaccadeError
from saccade.core.files import write_text
from saccade.explain.explanation import Explanation
from saccade.explain.html.figure import write_page


@dataclass(frozen=True)
class ReportStage:
    """One step of the run and how long it took."""

    name: str
    seconds: float
    detail: str = ""


@dataclass(frozen=True)
class Value:
    """A number in percent, with its spread where several runs were made."""

    mean: float
    spread: float | None = None


@dataclass(frozen=True)
class ReportRow:
    """One model's results, a value (or None) per column."""

    name: str
    values: tuple[Value | None, ...]
    kind: Literal["model", "baseline", "chance"] = "model"


@dataclass(frozen=True)
class Results:
    """A table: columns in named groups, such as ("test, sentence to picture", ("R@1", "R@5", "R@10"))."""

    groups: tuple[tuple[str, tuple[str, ...]], ...]
    rows: tuple[ReportRow, ...]
    note: str = ""

    def __post_init__(self) -> None:
        columns = sum(len(names) for _, names in self.groups)
        for row in self.rows:
            if len(row.values) != columns:
                raise SaccadeError(f'the results of "{row.name}" need {columns} values, not {len(row.values)}')

    @property
    def best(self) -> list[float]:
        """The best mean of each column, chance aside."""
        rows = [row.values for row in self.rows if row.kind != "chance"]
        found = ([v.mean for row in rows if (v := row[n]) is not None] for n in range(len(self.starts)))
        return [max(means, default=float("inf")) for means in found]

    @property
    def starts(self) -> list[bool]:
        """Whether each column is the first of its group."""
        return [n == 0 for _, names in self.groups for n in range(len(names))]


@dataclass(frozen=True)
class Found:
    """A picture that a search returned; `right` if it is the one the sentence was written for."""

    image: UInt8[Array, "height width 3"]
    score: float
    right: bool = False


@dataclass(frozen=True)
class Query:
    """A sentence, the pictures it found (best first), the rank of the right one, and why the first was found."""

    text: str
    found: tuple[Found, ...]
    rank: int
    explanation: Explanation | None = None


@dataclass(frozen=True)
class Twin:
    """Two pictures described by the same words bound otherwise, and how each model scores the four pairs."""

    images: tuple[UInt8[Array, "height width 3"], UInt8[Array, "height width 3"]]
    captions: tuple[str, str]  # of the first and of the second picture
    scores: Mapping[str, Float[Array, "2 2"]]  # model → [caption, picture]


@dataclass(frozen=True)
class Report:
    """Everything `saccade demo` shows."""

    title: str
    lead: str
    highlights: tuple[tuple[str, str], ...] = ()  # a few large figures: (value, what it is)
    stages: tuple[ReportStage, ...] = ()
    results: Results | None = None
    queries: tuple[Query, ...] = ()
    twins: tuple[Twin, ...] = ()
    commands: tuple[tuple[str, str], ...] = ()  # (command, what it does)
    foot: str = ""

    def html(self) -> str:
        """The page: one self-contained document. All texts are plain text and are escaped."""
        return write_page("report.html", self.title, report=self, duration=_duration)

    def save(self, path: Path | str) -> Path:
        path = Path(path)
        if path.suffix.lower() not in (".html", ".htm"):
            raise SaccadeError(f"{path}: a report is saved as .html, not {path.suffix or 'a bare name'}")
        write_text(path, self.html())
        return path


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s"
