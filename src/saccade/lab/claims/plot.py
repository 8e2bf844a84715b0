"""The picture of a claim: one panel a split, one row a variant, a dot a seed, a bar from mean − sd to mean + sd."""

from __future__ import annotations

from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np

from saccade.lab.claims.findings import Findings, SplitFindings
from saccade.lab.reports import FAINT, INK, colour, new_figure, quiet, save_figure

PANEL_WIDTH, ROW_HEIGHT = 2.55, 0.46  # inches


def draw_claim(findings: Findings, path: Path) -> bool:
    """Draw what was measured; False, and no file, if that is nothing."""
    panels = [split for split in findings.splits if split.any_scores() is not None]
    if not panels:
        return False
    labels = [variant.label for variant in findings.claim.variants]
    longest = max(max(len(line) for line in _row_name(label).splitlines()) for label in labels)
    left, above, below = 0.35 + 0.085 * longest, 0.62, 0.55
    size = left + PANEL_WIDTH * len(panels) + 0.15, above + below + ROW_HEIGHT * len(labels)
    figure = new_figure(size, dpi=192)
    for column, split in enumerate(panels):
        x = (left + PANEL_WIDTH * column) / size[0]
        height = ROW_HEIGHT * len(labels) / size[1]
        axes = figure.add_axes((x, below / size[1], (PANEL_WIDTH - 0.35) / size[0], height))
        _draw_panel(axes, split, labels, findings.claim.metric, named=column == 0)
    figure.text(left / size[0], 0.06 / size[1], findings.claim.metric_name, fontsize=8, color=FAINT, va="bottom")
    save_figure(figure, path)
    return True


def _draw_panel(axes: Any, split: SplitFindings, labels: list[str], metric: str, named: bool) -> None:
    for row, label in enumerate(labels):
        values = split.figures(label, metric)
        ink = colour(row)
        if not values:
            axes.text(
                0.02, row, "not measured", transform=axes.get_yaxis_transform(), va="center", fontsize=7.5, color=FAINT
            )
            continue
        mean = float(np.mean(values))
        if len(values) > 1:
            spread = float(np.std(values, ddof=1))
            axes.plot(
                [mean - spread, mean + spread],
                [row, row],
                color=ink,
                linewidth=6,
                alpha=0.28,
                solid_capstyle="butt",
                zorder=2,
            )
        axes.plot([mean, mean], [row - 0.24, row + 0.24], color=ink, linewidth=2.2, zorder=3)
        offsets = np.linspace(-0.1, 0.1, len(values)) if len(values) > 1 else [0.0]
        axes.plot(
            values,
            row + np.asarray(offsets),
            "o",
            color=ink,
            markersize=4.2,
            markeredgecolor="white",
            markeredgewidth=0.7,
            zorder=4,
        )
        axes.annotate(f"{mean:.1f}", (mean, row - 0.27), fontsize=7.5, color=INK, ha="center", va="bottom")
    axes.set_ylim(len(labels) - 0.45, -0.62)
    axes.margins(x=0.14)
    low, high = axes.get_xlim()
    if high - low < 4:  # a spread of a point must not look like a gulf
        axes.set_xlim((low + high) / 2 - 2, (low + high) / 2 + 2)
    axes.set_yticks(range(len(labels)), [_row_name(label) for label in labels] if named else [], fontsize=8.5)
    axes.xaxis.set_major_locator(_ticks())
    quiet(axes, grid="x")
    axes.set_title(split.title, loc="left", fontsize=9.5, color=INK, fontweight="bold", pad=16)
    axes.text(0, 1.0, split.verdict, transform=axes.transAxes, fontsize=8, color=FAINT, va="bottom")


def _row_name(label: str) -> str:
    return fill(label, 24)


def _ticks() -> Any:
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(4)
