"""The report of a whole run on one page: what was done, the numbers, searches with their reasons, and hard twins.

A report is data; the functions below make markup of its sections. All texts are plain text and are escaped here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Literal

from jaxtyping import Float, UInt8
from numpy import ndarray as Array

from saccade.core.errors import SaccadeError
from saccade.core.files import write_text
from saccade.explain.explanation import Explanation
from saccade.explain.html.figure import match_figure, packaged, picture_uri, write_page

FOUND_SIDE, TWIN_SIDE = 224, 320  # longer sides of the embedded pictures


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
        parts = [
            f'<header><h1>{escape(self.title)}</h1><p class="lead">{escape(self.lead)}</p>',
            highlight_list(self.highlights),
            "</header>",
            stages_section(self.stages),
            results_section(self.results) if self.results else "",
            queries_section(self.queries),
            twins_section(self.twins),
            commands_section(self.commands),
            f'<footer class="note">{escape(self.foot)}</footer>' if self.foot else "",
        ]
        return write_page(self.title, "\n".join(part for part in parts if part), packaged("report.css"))

    def save(self, path: Path | str) -> Path:
        path = Path(path)
        if path.suffix.lower() not in (".html", ".htm"):
            raise SaccadeError(f"{path}: a report is saved as .html, not {path.suffix or 'a bare name'}")
        write_text(path, self.html())
        return path


def highlight_list(highlights: tuple[tuple[str, str], ...]) -> str:
    if not highlights:
        return ""
    items = "".join(f"<div><dt>{escape(what)}</dt><dd>{escape(value)}</dd></div>" for value, what in highlights)
    return f'<dl class="highlights">{items}</dl>'


def stages_section(stages: tuple[ReportStage, ...]) -> str:
    """A bar whose parts are as long as the stages took, with a list beneath."""
    if not stages:
        return ""
    total = sum(stage.seconds for stage in stages)
    bar = "".join(
        f'<i class="s{n % 7}" style="flex-grow:{max(s.seconds, 0.01):.2f}"></i>' for n, s in enumerate(stages)
    )
    rows = "".join(
        f'<li><i class="s{n % 7}"></i><span>{escape(s.name)}</span><b>{_duration(s.seconds)}</b>'
        f"<small>{escape(s.detail)}</small></li>"
        for n, s in enumerate(stages)
    )
    return (
        f'<section><h2>What was done, in {_duration(total)}</h2><div class="timeline" aria-hidden="true">{bar}</div>'
        f'<ol class="stages">{rows}</ol></section>'
    )


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s"


def results_section(results: Results) -> str:
    def best(column: int) -> float:
        means = [v.mean for row in results.rows if row.kind != "chance" and (v := row.values[column]) is not None]
        return max(means, default=float("inf"))

    def cell(row: ReportRow, column: int, first: bool) -> str:
        value, edge = row.values[column], " first" if first else ""
        if value is None:
            return f'<td class="none{edge}">–</td>'
        spread = f"<small>± {value.spread:.1f}</small>" if value.spread is not None else ""
        text = f"{value.mean:.1f}{spread}"
        if row.kind != "chance" and value.mean >= best(column):
            text = f"<strong>{text}</strong>"
        return f'<td class="value{edge}" style="--part:{min(max(value.mean, 0), 100):.1f}%">{text}</td>'

    starts, at = set[int](), 0
    for _, names in results.groups:
        starts.add(at)
        at += len(names)
    groups = "".join(
        f'<th colspan="{len(names)}" class="first">{escape(group)}</th>' for group, names in results.groups
    )
    columns = "".join(
        f'<th scope="col"{" class=first" if n == 0 else ""}>{escape(name)}</th>'
        for _, names in results.groups
        for n, name in enumerate(names)
    )
    rows = "".join(
        f'<tr class="{row.kind}"><th scope="row">{escape(row.name)}</th>'
        + "".join(cell(row, column, column in starts) for column in range(at))
        + "</tr>"
        for row in results.rows
    )
    note = f'<p class="note">{escape(results.note)}</p>' if results.note else ""
    return (
        '<section><h2>Results</h2><div class="scroll"><table class="results"><thead>'
        f"<tr><td></td>{groups}</tr><tr><td></td>{columns}</tr></thead><tbody>{rows}</tbody></table></div>{note}</section>"
    )


def queries_section(queries: tuple[Query, ...]) -> str:
    if not queries:
        return ""
    intro = (
        '<p class="note">Each sentence, the pictures it finds in order, and below, why the first was found: hover, tap '
        "or focus a word to light up what it attends to. Words of one colour attend to the same place. The framed "
        "picture is the one the sentence was written for.</p>"
    )
    return f"<section><h2>Searches</h2>{intro}{''.join(map(_query, queries))}</section>"


def _query(query: Query) -> str:
    found = "".join(
        f'<li{" class=right" if f.right else ""}><img src="{picture_uri(f.image, FOUND_SIDE)}" alt="picture {n}">'
        f"<span>{n}{' · right' if f.right else ''}</span><b>{f.score:.3f}</b></li>"
        for n, f in enumerate(query.found, start=1)
    )
    beyond = "" if any(f.right for f in query.found) else f'<p class="note">The right one is at rank {query.rank}.</p>'
    figure = match_figure(query.explanation) if query.explanation else ""
    return f'<article><h3>“{escape(query.text)}”</h3><ol class="found">{found}</ol>{beyond}{figure}</article>'


def twins_section(twins: tuple[Twin, ...]) -> str:
    if not twins:
        return ""
    intro = (
        '<p class="note">Two pictures described by the same words, bound otherwise. A model that only weighs which '
        "words occur cannot distinguish them; one that attends word by word can. The larger of the two scores is "
        "bold; a tick means that the sentence preferred its own picture.</p>"
    )
    return f'<section><h2>Hard twins</h2>{intro}<div class="twins">{"".join(map(_twin, twins))}</div></section>'


def _twin(twin: Twin) -> str:
    pictures = "".join(
        f'<figure><img src="{picture_uri(image, TWIN_SIDE)}" alt="{escape(caption, quote=True)}">'
        f"<figcaption>{name}</figcaption></figure>"
        for name, image, caption in zip("AB", twin.images, twin.captions, strict=True)
    )
    rows = ""
    for own, caption in enumerate(twin.captions):
        rows += f'<tr class="said"><th colspan="4" scope="rowgroup">{"AB"[own]}: “{escape(caption)}”</th></tr>'
        for model, scores in twin.scores.items():
            right = bool(scores[own][own] > scores[own][1 - own])
            verdict = '<span class="tick">✓<span class="sr"> right</span></span>'
            if not right:
                verdict = '<span class="cross">✗<span class="sr"> wrong</span></span>'
            preferred = own if right else 1 - own
            cells = "".join(
                f"<td><strong>{s:.3f}</strong></td>" if n == preferred else f"<td>{s:.3f}</td>"
                for n, s in enumerate(map(float, scores[own]))
            )
            rows += f'<tr><th scope="row">{escape(model)}</th>{cells}<td>{verdict}</td></tr>'
    head = '<thead><tr><td></td><th scope="col">A</th><th scope="col">B</th><td></td></tr></thead>'
    return f'<div class="twin"><div class="pair">{pictures}</div><table>{head}<tbody>{rows}</tbody></table></div>'


def commands_section(commands: tuple[tuple[str, str], ...]) -> str:
    if not commands:
        return ""
    items = "".join(f"<dt><code>{escape(command)}</code></dt><dd>{escape(what)}</dd>" for command, what in commands)
    return f'<section><h2>How to go on</h2><dl class="commands">{items}</dl></section>'
