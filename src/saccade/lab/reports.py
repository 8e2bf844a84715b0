"""What the lab's reports share: tables in Markdown; colours, quiet axes, and how a figure is saved."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from saccade.core.files import atomic_file
from saccade.metrics.calibration import Reliability

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, FAINT, GRID = "#1d2429", "#8a949c", "#e3e7ea"
COLOURS = (  # told apart by colour-blind readers too (after Okabe and Ito), dark enough for white paper
    "#0069ab",  # blue
    "#bf4b00",  # vermilion
    "#00785a",  # bluish green
    "#a63f7c",  # reddish purple
    "#846500",  # yellow
    "#5546b3",  # violet
    "#46525c",  # slate
)


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]], words: int = 1) -> str:
    """A Markdown table whose first so many columns hold words; numbers are set to the right."""
    rule = ["---" if column < words else "---:" for column in range(len(head))]
    lines = ([cell.replace("|", "\\|") for cell in row] for row in (head, rule, *rows))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def colour(place: int) -> str:
    return COLOURS[place % len(COLOURS)]


def new_figure(size: tuple[float, float], dpi: int, **options: Any) -> Figure:
    """A figure on white, drawn without a window."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, dpi=dpi, facecolor="white", **options)
    FigureCanvasAgg(figure)
    return figure


def quiet(axes: Any, grid: str = "both") -> None:
    """Faint lines behind the figures, no frame, no ticks."""
    axes.tick_params(axis="both", which="both", length=0, colors=INK, labelsize=8)
    axes.grid(axis=grid, color=GRID, linewidth=0.8, zorder=0)
    for side in axes.spines.values():
        side.set_visible(False)


def save_figure(figure: Figure, path: Path | str) -> None:
    """As a PNG whose bytes depend on what is drawn alone."""
    with atomic_file(path) as temporary:
        figure.savefig(temporary, format="png", metadata={"Software": None})


def draw_reliability(found: Reliability, path: Path | str) -> None:
    """Of the pairs that were given about the same probability, the share that fit; the nearer the diagonal the better.

    Dots are as large as the pairs of a bin are many.
    """
    figure = new_figure((4.2, 4.2), 160, layout="constrained")
    axes = figure.subplots()
    quiet(axes)
    axes.plot([0, 1], [0, 1], color=FAINT, linewidth=1, zorder=1)
    axes.plot(found.confidence, found.rate, color=COLOURS[0], linewidth=1.5, zorder=2)
    sizes = 12 + 240 * found.count / found.count.max()
    axes.scatter(found.confidence, found.rate, s=sizes, color=COLOURS[0], alpha=0.8, zorder=3)
    axes.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), aspect="equal")
    axes.set_xlabel("probability given", color=INK, fontsize=9)
    axes.set_ylabel("share that fits", color=INK, fontsize=9)
    axes.set_title(f"expected calibration error {100 * found.error:.1f} %", color=INK, fontsize=10)
    save_figure(figure, path)
