"""The report of a whole run on one page: what was done, the numbers, searches with their reasons, and hard twins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Literal

from jaxtyping import Float, UInt8
from numpy import ndarray as Array

from saccade.errors import SaccadeError
from saccade.explain import sections
from saccade.explain.explanation import Explanation
from saccade.explain.page import write_page
from saccade.files import write_text


@dataclass(frozen=True)
class Stage:
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
class Row:
    """One model's results, a value (or None) per column."""

    name: str
    values: tuple[Value | None, ...]
    kind: Literal["model", "baseline", "chance"] = "model"


@dataclass(frozen=True)
class Results:
    """A table: columns in named groups, such as ("test, sentence to picture", ("R@1", "R@5", "R@10"))."""

    groups: tuple[tuple[str, tuple[str, ...]], ...]
    rows: tuple[Row, ...]
    note: str = ""

    def __post_init__(self) -> None:
        columns = sum(len(names) for _, names in self.groups)
        for row in self.rows:
            if len(row.values) != columns:
                raise SaccadeError(f'the results of "{row.name}" need {columns} values, not {len(row.values)}')


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
    """Two pictures described by the same words bound otherwise, and what each model thinks of the four pairs."""

    images: tuple[UInt8[Array, "height width 3"], UInt8[Array, "height width 3"]]
    captions: tuple[str, str]  # of the first and of the second picture
    scores: Mapping[str, Float[Array, "2 2"]]  # model → [caption, picture]


@dataclass(frozen=True)
class Report:
    """Everything `saccade demo` shows."""

    title: str
    lead: str
    highlights: tuple[tuple[str, str], ...] = ()  # a few large figures: (value, what it is)
    stages: tuple[Stage, ...] = ()
    results: Results | None = None
    queries: tuple[Query, ...] = ()
    twins: tuple[Twin, ...] = ()
    commands: tuple[tuple[str, str], ...] = ()  # (command, what it does)
    foot: str = ""

    def html(self) -> str:
        """The page: one self-contained document. All texts are plain text and are escaped."""
        parts = [
            f'<header><h1>{escape(self.title)}</h1><p class="lead">{escape(self.lead)}</p>',
            sections.highlight_list(self.highlights),
            "</header>",
            sections.stages_section(self.stages),
            sections.results_section(self.results) if self.results else "",
            sections.queries_section(self.queries),
            sections.twins_section(self.twins),
            sections.commands_section(self.commands),
            f'<footer class="note">{escape(self.foot)}</footer>' if self.foot else "",
        ]
        return write_page(self.title, "\n".join(part for part in parts if part), sections.STYLE)

    def save(self, path: Path | str) -> Path:
        path = Path(path)
        if path.suffix.lower() not in (".html", ".htm"):
            raise SaccadeError(f"{path}: a report is saved as .html, not {path.suffix or 'a bare name'}")
        write_text(path, self.html())
        return path
